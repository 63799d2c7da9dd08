// SPDX-License-Identifier: Apache-2.0
#include "tap.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace hixl::sim {

namespace {

class TapLink final : public links::Link, private links::LinkEvents {
 public:
  TapLink(TapBoard& board, Rank self, const links::LinkIdentity& identity, const links::AtomicWindow* window,
          links::LinkEvents& events)
      : board_(board),
        key_{self, identity.rank, identity.link_id, identity.link_gen},
        window_(window),
        events_(events) {}
  ~TapLink() override { look_at_window(); }
  TapLink(const TapLink&) = delete;
  TapLink& operator=(const TapLink&) = delete;
  [[nodiscard]] links::LinkEvents& inner_events() noexcept { return *this; }
  void set_inner(std::unique_ptr<links::Link> inner) { inner_ = std::move(inner); }

  [[nodiscard]] const links::LinkCaps& caps() const noexcept override { return inner_->caps(); }
  [[nodiscard]] links::Answer post(const links::Post& post) override;
  std::size_t poll(std::span<links::Completion> out) override;
  [[nodiscard]] bool send(wire::FrameType type, ConstBytes body) override;
  [[nodiscard]] links::Answer attach(const wire::RegionDescriptor& region) override { return inner_->attach(region); }
  [[nodiscard]] bool reaches(RegionKey key) const noexcept override { return inner_->reaches(key); }
  [[nodiscard]] bool revoke(RegionKey key) override;
  void close() override;
  [[nodiscard]] bool drained() override { return inner_->drained(); }
  [[nodiscard]] const wire::ExecutedSet& executed() const noexcept override { return inner_->executed(); }
  [[nodiscard]] LinkSeq sequence_of(std::uint64_t cookie) const noexcept override {
    return inner_->sequence_of(cookie);
  }
  [[nodiscard]] bool abandon(std::uint64_t cookie) override;
  void drop_window(std::uint32_t window_id) override { inner_->drop_window(window_id); }
  [[nodiscard]] Instant last_heard() const noexcept override { return inner_->last_heard(); }
  [[nodiscard]] Traffic traffic() const noexcept override { return inner_->traffic(); }

 private:
  void on_up() override {
    count(Rare::links_up);
    if (inner_->caps().kind == LinkKind::roce) count(Rare::rdma_links_up);
    events_.on_up();
  }
  void on_completions() override { events_.on_completions(); }
  void on_credit() override { events_.on_credit(); }
  void on_control(const wire::FrameHeader& header, ConstBytes body) override;
  void on_attached(RegionKey key, const Result<void>& result) override { events_.on_attached(key, result); }
  void on_down(const Error& error) override {
    count(Rare::links_broken);
    events_.on_down(error);
  }
  void count(Rare which, std::uint64_t by = 1) noexcept { board_.rare.add(which, by); }
  void on_fence_answer(const wire::FenceAnswer& answer);
  [[nodiscard]] std::vector<links::Segment> twist(links::Post& post);
  void look_at_window();
  void send_held();
  void note_barrier(ConstBytes body);

  TapBoard& board_;
  const TapBoard::Key key_;
  const links::AtomicWindow* const window_;
  links::LinkEvents& events_;
  std::unique_ptr<links::Link> inner_;
  std::map<std::uint64_t, links::Verb> posted_;                // by cookie
  std::map<std::uint64_t, std::vector<links::Segment>> lies_;  // the same: what was asked for in the post's place
  bool closed_ = false;
  wire::FrameType held_type_{};
  std::vector<std::byte> held_;
};

/// S11: a range that ends beyond the region, one that wraps around, or a key that does not open it.
std::vector<links::Segment> TapLink::twist(links::Post& post) {
  std::vector<links::Segment> segments(post.segments.begin(), post.segments.end());
  links::Segment& last = segments.back();
  switch (board_.random.below(3)) {
    case 0:
      last.offset += std::uint64_t{1} << 30U;
      break;
    case 1:
      last.offset = std::uint64_t{0} - last.bytes;
      break;
    default:
      post.token.low ^= 1;
  }
  post.segments = segments;
  return segments;
}

links::Answer TapLink::post(const links::Post& post) {
  links::Post asked = post;
  std::vector<links::Segment> lie;
  // A question about an atomic that was executed is answered without a look at the region.
  const bool asks_again =
      links::is_atomic(post.verb) &&
      (post.atomic.ask || !board_.asked.insert({std::get<0>(key_), std::get<1>(key_), post.op_id}).second);
  if (board_.random.chance(board_.lie_per_mille) && !asks_again) lie = twist(asked);
  const links::Answer answer = inner_->post(asked);
  if (answer == links::Answer::busy) return answer;
  count(Rare::posts);
  if (!lie.empty()) {
    count(Rare::lies);
    lies_[post.cookie] = std::move(lie);
  } else {
    lies_.erase(post.cookie);
  }
  const bool signal = links::is_signal(post.verb);
  const bool atomic = links::is_atomic(post.verb);
  if (post.attempt > 0) count(atomic ? Rare::atomics_resent : signal ? Rare::signals_resent : Rare::resent);
  if (atomic && post.atomic.ask) count(Rare::atomics_asked);
  if (post.attempt > 1) count(Rare::resent_again);
  if (answer == links::Answer::posted) posted_[post.cookie] = post.verb;
  return answer;
}

std::size_t TapLink::poll(std::span<links::Completion> out) {
  const std::size_t polled = inner_->poll(out);
  for (const links::Completion& completion : out.first(polled)) {
    posted_.erase(completion.cookie);
    const bool lie = lies_.erase(completion.cookie) > 0;
    if (completion.error.code != ErrorCode::ok) count(Rare::refused);
    if (!lie) continue;
    if (completion.error.code == ErrorCode::ok) board_.lies_granted += 1;
    if (completion.error.kind() == ErrorKind::fix_call) board_.lies_refused += 1;
  }
  return polled;
}

bool TapLink::send(wire::FrameType type, ConstBytes body) {
  if (type == wire::FrameType::barrier) note_barrier(body);
  if (type != wire::FrameType::fence_request && type != wire::FrameType::fence_answer) return inner_->send(type, body);
  if (board_.random.chance(board_.faults.lost_per_mille)) {
    count(Rare::fence_messages_lost);
    return true;
  }
  const bool held_first = board_.random.chance(500);
  if (held_first) send_held();
  if (!inner_->send(type, body)) return false;
  if (type == wire::FrameType::fence_request) count(Rare::fence_requests);
  if (!held_first) send_held();
  if (board_.random.chance(board_.faults.twice_per_mille) && inner_->send(type, body)) {
    count(Rare::fence_messages_repeated);
  }
  if (board_.random.chance(board_.faults.held_per_mille)) {
    held_type_ = type;
    held_.assign(body.begin(), body.end());
  }
  return true;
}

/// An old message, which has lost its meaning meanwhile.
void TapLink::send_held() {
  if (!held_.empty() && inner_->send(held_type_, std::exchange(held_, {}))) count(Rare::fence_messages_repeated);
}

void TapLink::note_barrier(ConstBytes body) {
  wire::Barrier note;
  if (!wire::decode_body(body, note)) return;
  using wire::BarrierNote;
  const Rank self = std::get<0>(key_);
  if (note.note == BarrierNote::released) {
    board_.releases.push_back({note.group, note.number, self});
  } else if (note.note == BarrierNote::arrived || note.note == BarrierNote::ask || note.note == BarrierNote::entered) {
    std::uint64_t& entered = board_.entered[{self, note.group}];
    entered = std::max(entered, note.number);
  }
}

bool TapLink::revoke(RegionKey key) {
  const bool clear = inner_->revoke(key);
  if (!clear) count(Rare::revoke_waited);
  return clear;
}

bool TapLink::abandon(std::uint64_t cookie) {
  const bool taken_back = inner_->abandon(cookie);
  if (const auto found = posted_.find(cookie); found != posted_.end() && found->second == links::Verb::read) {
    count(taken_back ? Rare::reads_taken_back : Rare::reads_kept);
  }
  if (taken_back) posted_.erase(cookie), lies_.erase(cookie);
  return taken_back;
}

/// Several taps look at one window, and an address may come to belong to another one, which begins at 0.
void TapLink::look_at_window() {
  auto& [repeats, turned_away] = board_.windows[window_];
  if (window_->repeats() < repeats || window_->turned_away() < turned_away) repeats = turned_away = 0;
  count(Rare::answers_repeated, window_->repeats() - std::exchange(repeats, window_->repeats()));
  count(Rare::window_full, window_->turned_away() - std::exchange(turned_away, window_->turned_away()));
}

void TapLink::close() {
  look_at_window();
  if (!std::exchange(closed_, true)) {
    std::set<LinkSeq> open;
    for (const auto& [cookie, verb] : posted_) {
      const LinkSeq sequence = inner_->sequence_of(cookie);
      if (verb != links::Verb::read && sequence != 0) open.insert(sequence);
    }
    count(Rare::unresolved, open.size());
    if (!open.empty()) board_.unresolved[key_] = std::move(open);
  }
  inner_->close();
}

void TapLink::on_control(const wire::FrameHeader& header, ConstBytes body) {
  if (header.type == wire::FrameType::fence_answer) {
    if (wire::FenceAnswer answer; wire::decode_body(body, answer)) on_fence_answer(answer);
  }
  events_.on_control(header, body);
}

void TapLink::on_fence_answer(const wire::FenceAnswer& answer) {
  count(Rare::fence_answers);
  const auto found = board_.unresolved.find({std::get<0>(key_), std::get<1>(key_), answer.link_id, answer.link_gen});
  if (found == board_.unresolved.end()) return count(Rare::fence_answers_repeated);
  for (const LinkSeq sequence : found->second) {
    count(answer.executed.contains(sequence) ? Rare::resolved_executed : Rare::resolved_not_executed);
  }
  board_.unresolved.erase(found);
}

class TapFactory final : public links::LinkFactory {
 public:
  TapFactory(TapBoard& board, Rank self, std::unique_ptr<links::LinkFactory> inner)
      : board_(board), self_(self), inner_(std::move(inner)) {}
  [[nodiscard]] const links::LinkCaps& caps() const noexcept override { return inner_->caps(); }
  [[nodiscard]] Result<void> available() const override { return inner_->available(); }
  [[nodiscard]] std::uint32_t rails() const noexcept override { return inner_->rails(); }
  [[nodiscard]] bool ready(std::uint32_t index) override { return inner_->ready(index); }
  [[nodiscard]] bool revoke(RegionKey key) override { return inner_->revoke(key); }
  [[nodiscard]] std::unique_ptr<links::Link> make(const links::LinkIdentity& identity,
                                                  std::unique_ptr<links::FrameStream> stream,
                                                  const links::LinkServices& services,
                                                  links::LinkEvents& events) override {
    // What is unresolved of this link's earlier generations has been settled by the handshake that led here.
    std::erase_if(board_.unresolved, [&](const auto& entry) {
      const auto& [rank, peer, link, generation] = entry.first;
      const bool ours = rank == self_ && peer == identity.rank && link == identity.link_id;
      if (ours) board_.rare.add(Rare::resolved_by_handshake, entry.second.size());
      return ours;
    });
    auto tap = std::make_unique<TapLink>(board_, self_, identity, services.atomics, events);
    tap->set_inner(inner_->make(identity, std::move(stream), services, tap->inner_events()));
    return tap;
  }

 private:
  TapBoard& board_;
  const Rank self_;
  const std::unique_ptr<links::LinkFactory> inner_;
};

}  // namespace

std::unique_ptr<links::LinkFactory> make_tap(TapBoard& board, Rank self, std::unique_ptr<links::LinkFactory> inner) {
  return std::make_unique<TapFactory>(board, self, std::move(inner));
}

}  // namespace hixl::sim
