// SPDX-License-Identifier: Apache-2.0
//
// Intrusive doubly linked list: members link themselves, so that queueing allocates nothing. Loop-bound.
#pragma once

#include <cstddef>

#include "base/assert.hpp"

namespace hixl {

/// Base of a member; `Tag` lets one object be in several lists. Leaves its list when destroyed.
template <class Tag>
class ListNode {
 public:
  ListNode() = default;
  ListNode(const ListNode&) = delete;
  ListNode& operator=(const ListNode&) = delete;
  ~ListNode() { unlink(); }
  [[nodiscard]] bool linked() const noexcept { return next_ != nullptr; }
  void unlink() noexcept {
    if (next_ == nullptr) return;
    next_->previous_ = previous_;
    previous_->next_ = next_;
    next_ = previous_ = nullptr;
  }

 private:
  template <class, class>
  friend class List;
  ListNode* next_ = nullptr;
  ListNode* previous_ = nullptr;
};

template <class T, class Tag>
class List {
 public:
  List() { head_.next_ = head_.previous_ = &head_; }
  List(const List&) = delete;
  List& operator=(const List&) = delete;
  ~List() {
    clear();
    head_.next_ = head_.previous_ = nullptr;
  }

  [[nodiscard]] bool empty() const noexcept { return head_.next_ == &head_; }
  void push_back(T& item) noexcept { insert_before(head_, item); }
  void push_front(T& item) noexcept { insert_before(*head_.next_, item); }
  [[nodiscard]] T* front() noexcept { return empty() ? nullptr : cast(head_.next_); }
  [[nodiscard]] T* back() noexcept { return empty() ? nullptr : cast(head_.previous_); }
  T* pop_front() noexcept {
    T* item = front();
    if (item != nullptr) static_cast<ListNode<Tag>*>(item)->unlink();
    return item;
  }
  /// Moves every member of `other` to the end of this list, in order. Constant time.
  void append(List& other) noexcept {
    if (other.empty()) return;
    ListNode<Tag>* first = other.head_.next_;
    ListNode<Tag>* last = other.head_.previous_;
    other.head_.next_ = other.head_.previous_ = &other.head_;
    first->previous_ = head_.previous_;
    head_.previous_->next_ = first;
    last->next_ = &head_;
    head_.previous_ = last;
  }
  /// The member after `item`, or null. Take it before `item` is unlinked.
  [[nodiscard]] T* next(T& item) noexcept {
    ListNode<Tag>* node = static_cast<ListNode<Tag>&>(item).next_;
    return node == &head_ ? nullptr : cast(node);
  }
  /// The member before `item`, or null.
  [[nodiscard]] T* previous(T& item) noexcept {
    ListNode<Tag>* node = static_cast<ListNode<Tag>&>(item).previous_;
    return node == &head_ ? nullptr : cast(node);
  }
  /// Behind `place`, which is a member of this list.
  void insert_after(T& place, T& item) noexcept { insert_before(*static_cast<ListNode<Tag>&>(place).next_, item); }
  void clear() noexcept {
    while (pop_front() != nullptr) {
    }
  }

 private:
  static T* cast(ListNode<Tag>* node) noexcept { return static_cast<T*>(node); }
  void insert_before(ListNode<Tag>& place, T& item) noexcept {
    auto& node = static_cast<ListNode<Tag>&>(item);
    HIXL_ASSERT(!node.linked());
    node.next_ = &place;
    node.previous_ = place.previous_;
    place.previous_->next_ = &node;
    place.previous_ = &node;
  }
  ListNode<Tag> head_;
};

}  // namespace hixl
