#include "src/comm/mpi/mpi_roll_call.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <thread>

#include "src/base/clock.h"

namespace yardmaster {
namespace {

constexpr int kQuestionTag = 1, kAnswerTag = 2;
constexpr size_t kMostBytes =
    4000;  // of an answer: small enough that MPI sends it without the other end's help

class MpiRollCall : public RollCall {
 public:
  explicit MpiRollCall(std::shared_ptr<MpiState> state) : state_(std::move(state)) {
    YM_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    YM_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  }
  ~MpiRollCall() override {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (!finalised && !state_->broken) MPI_Comm_free(&comm_);
  }
  int rank() const override { return state_->world_rank; }
  int size() const override { return state_->world_size; }

  void Answer(const std::string& mine) override {
    int asker = 0;
    std::string text;
    while (Receive(kQuestionTag, &asker, &text)) Send(asker, kAnswerTag, mine);
    // Sent texts are dropped as MPI is done with them.
    sent_.remove_if([](Sent& s) {
      int done = 0;
      return MPI_Test(&s.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
    });
  }

  std::vector<std::string> Ask(const std::string& mine, double seconds) override {
    std::vector<std::string> answers(static_cast<size_t>(size()));
    answers[static_cast<size_t>(rank())] = mine;
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) Send(r, kQuestionTag, "");
    }
    const double end = NowSeconds() + seconds;
    const auto missing = [&] {
      return std::any_of(answers.begin(), answers.end(), [](const std::string& a) { return a.empty(); });
    };
    while (missing() && NowSeconds() < end) {
      Answer(mine);
      int from = 0;
      std::string text;
      if (Receive(kAnswerTag, &from, &text)) {
        answers[static_cast<size_t>(from)] = text.empty() ? "(nothing)" : text;
      } else {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
    }
    return answers;
  }

 private:
  struct Sent {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  void Send(int to, int tag, const std::string& text) {
    Sent& s = sent_.emplace_back();
    s.text = text.substr(0, kMostBytes);
    YM_MPI(MPI_Isend(s.text.data(), static_cast<int>(s.text.size()), MPI_BYTE, to, tag, comm_, &s.request));
  }
  bool Receive(int tag, int* from, std::string* text) {
    int found = 0, bytes = 0;
    MPI_Status status;
    YM_MPI(MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &found, &status));
    if (!found) return false;
    YM_MPI(MPI_Get_count(&status, MPI_BYTE, &bytes));
    text->resize(static_cast<size_t>(bytes));
    *from = status.MPI_SOURCE;
    YM_MPI(MPI_Recv(text->data(), bytes, MPI_BYTE, *from, tag, comm_, MPI_STATUS_IGNORE));
    return true;
  }

  std::shared_ptr<MpiState> state_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::list<Sent> sent_;  // addresses stay
};

}  // namespace

std::unique_ptr<RollCall> MakeMpiRollCall(std::shared_ptr<MpiState> state) {
  return std::make_unique<MpiRollCall>(std::move(state));
}

}  // namespace yardmaster
