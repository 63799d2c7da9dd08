// SPDX-License-Identifier: Apache-2.0
//
// The same as the barrier benchmark, of MPI: prints the median of MPI_Barrier at rank 0 in microseconds.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <mpi.h>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2000;
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<double> times;
  for (int i = 0; i < rounds + rounds / 10; ++i) {
    const double start = MPI_Wtime();
    MPI_Barrier(MPI_COMM_WORLD);
    if (i >= rounds / 10) times.push_back((MPI_Wtime() - start) * 1e6);
  }
  std::sort(times.begin(), times.end());
  if (rank == 0) std::printf("%.2f\n", times[times.size() / 2]);
  MPI_Finalize();
  return 0;
}
