#include "src/comm/mpi/mpi_world.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <thread>

#include "src/base/check.h"
#include "src/comm/mpi/mpi_agreement.h"
#include "src/comm/mpi/mpi_call.h"
#include "src/comm/mpi/mpi_communicator_impl.h"
#include "src/comm/mpi/mpi_roll_call.h"

namespace yardmaster {

MpiWorld::MpiWorld(const MpiOptions& options)
    : state_(std::make_shared<MpiState>()), exceptions_at_start_(std::uncaught_exceptions()) {
  int initialised = 0;
  MPI_Initialized(&initialised);
  YM_CHECK(!initialised, "MPI is started twice in one process");
  YM_CHECK_GE(options.max_message_bytes, 8);
  YM_CHECK_LE(options.max_message_bytes, int64_t{1} << 30);
  int provided = MPI_THREAD_SINGLE;
  YM_MPI(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided));
  threads_may_call_ = provided >= MPI_THREAD_MULTIPLE;
  YM_MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
  if (provided < MPI_THREAD_FUNNELED) {
    throw Error(ExitCode::kConfig, "this MPI library does not work in a process with threads",
                "MPI_Init_thread", "use Open MPI 4 or later");
  }
  YM_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank_));
  YM_MPI(MPI_Comm_size(MPI_COMM_WORLD, &size_));
  MPI_Comm local = MPI_COMM_NULL;
  YM_MPI(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &local));
  YM_MPI(MPI_Comm_rank(local, &local_rank_));
  YM_MPI(MPI_Comm_size(local, &local_size_));
  YM_MPI(MPI_Comm_free(&local));
  char name[MPI_MAX_PROCESSOR_NAME] = "";
  int length = 0;
  YM_MPI(MPI_Get_processor_name(name, &length));
  host_.assign(name, static_cast<size_t>(length));

  state_->timeout_seconds = options.timeout_seconds;
  state_->max_message_bytes = options.max_message_bytes;
  state_->world_rank = rank_;
  state_->world_size = size_;
  state_->oversubscribed =
      local_size_ > static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

MpiWorld::~MpiWorld() {
  if (state_->broken || std::uncaught_exceptions() > exceptions_at_start_) return;
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (!finalised) MPI_Finalize();
}

void MpiWorld::Abort(ExitCode code) {
  MPI_Abort(MPI_COMM_WORLD, static_cast<int>(code));
  throw InternalError("MPI_Abort returned");
}

void MpiWorld::set_timeout_seconds(double seconds) { state_->timeout_seconds = seconds; }

bool MpiWorld::Launched() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"}) {
    if (std::getenv(variable) != nullptr) return true;
  }
  return false;
}

std::unique_ptr<MpiCommunicator> MpiWorld::Group(const std::vector<int64_t>& ranks,
                                                 const std::string& name) {
  MpiCheckUsable(*state_);
  YM_CHECK(std::find(ranks.begin(), ranks.end(), rank_) != ranks.end(), "rank ", rank_,
           " is not in its group ", name);
  std::vector<int> members;
  for (int64_t r : ranks) {
    YM_CHECK(0 <= r && r < size_, "group ", name, " has rank ", r, " of ", size_);
    members.push_back(static_cast<int>(r));
  }
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  YM_MPI(MPI_Comm_group(MPI_COMM_WORLD, &world));
  YM_MPI(MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group));
  MPI_Comm comm = MPI_COMM_NULL;
  YM_MPI(MPI_Comm_create_group(MPI_COMM_WORLD, group, 0, &comm));
  MPI_Group_free(&group);
  MPI_Group_free(&world);
  YM_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  return std::unique_ptr<MpiCommunicator>(new MpiCommunicator(
      std::make_unique<MpiCommunicator::Impl>(state_, comm, std::move(members), name)));
}

std::unique_ptr<MpiCommunicator> MpiWorld::WorldGroup() {
  std::vector<int64_t> ranks(static_cast<size_t>(size_));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  return Group(ranks, "world");
}

std::unique_ptr<RollCall> MpiWorld::MakeRollCall() {
  MpiCheckUsable(*state_);
  return threads_may_call_ ? MakeMpiRollCall(state_) : nullptr;
}

std::unique_ptr<Agreement> MpiWorld::MakeAgreement() {
  MpiCheckUsable(*state_);
  return MakeMpiAgreement(state_);
}

}  // namespace yardmaster
