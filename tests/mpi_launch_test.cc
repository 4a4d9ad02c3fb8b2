// mpirun works inside a test: four ranks find each other and agree on a sum.
#include <mpi.h>

#include "tests/catch.h"

TEST_CASE("four ranks add up") {
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (!initialised) {
    MPI_Init(nullptr, nullptr);
  }
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  int sum = 0;
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  CHECK(size == 4);
  CHECK(sum == 6);
  MPI_Finalize();
}
