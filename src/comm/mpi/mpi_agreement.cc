#include "src/comm/mpi/mpi_agreement.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <thread>

#include "src/base/check.h"
#include "src/base/clock.h"

namespace yardmaster {
namespace {

constexpr int kTag = 1, kRollCallTag = 2;
constexpr double kRollCallSeconds = 2;
constexpr size_t kNamedRanks = 8;

class MpiAgreement : public Agreement {
 public:
  explicit MpiAgreement(std::shared_ptr<MpiState> state) : state_(std::move(state)) {
    YM_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_));
    YM_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  }
  ~MpiAgreement() override {
    int finalised = 0;
    MPI_Finalized(&finalised);
    if (!finalised && !state_->broken) MPI_Comm_free(&comm_);
  }
  int rank() const override { return state_->world_rank; }
  int size() const override { return state_->world_size; }

  std::vector<std::string> AllGather(const std::string& mine) override {
    const std::vector<int64_t> lengths = Lengths(mine);
    const int64_t total = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
    std::string all(static_cast<size_t>(total), '\0');
    const std::vector<int64_t> begins = Begins(lengths);
    std::copy(mine.begin(), mine.end(), all.begin() + begins[rank()]);
    if (total > 0 && total <= state_->max_message_bytes) {
      const std::vector<int> counts(lengths.begin(), lengths.end()), offsets(begins.begin(), begins.end());
      MPI_Request request = MPI_REQUEST_NULL;
      YM_MPI(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_BYTE, all.data(), counts.data(), offsets.data(), MPI_BYTE,
                             comm_, &request));
      Wait({request}, "the other ranks' answers");
    } else {
      for (int r = 0; r < size(); ++r) Spread(all, begins[r], lengths[r], r);
    }
    return Split(all, begins, lengths);
  }

  std::string Broadcast(const std::string& mine) override {
    int64_t length = static_cast<int64_t>(mine.size());
    MpiCheckUsable(*state_);
    MPI_Request request = MPI_REQUEST_NULL;
    YM_MPI(MPI_Ibcast(&length, 1, MPI_INT64_T, 0, comm_, &request));
    Wait({request}, "what rank 0 decides");
    std::string text = rank() == 0 ? mine : std::string(static_cast<size_t>(length), '\0');
    Spread(text, 0, length, 0);
    return text;
  }

  std::vector<std::string> Gather(const std::string& mine) override {
    const std::vector<int64_t> lengths = Lengths(mine);
    const std::vector<int64_t> begins = Begins(lengths);
    const int64_t most = state_->max_message_bytes;
    std::vector<MPI_Request> requests;
    std::string buffer = mine;
    if (rank() == 0) {
      buffer.resize(static_cast<size_t>(begins[size()]));
      for (int r = 1; r < size(); ++r) {
        for (int64_t done = 0; done < lengths[r]; done += most) {
          requests.push_back(MPI_REQUEST_NULL);
          YM_MPI(MPI_Irecv(buffer.data() + begins[r] + done,
                           static_cast<int>(std::min(most, lengths[r] - done)), MPI_BYTE, r, kTag, comm_,
                           &requests.back()));
        }
      }
    } else {
      for (int64_t done = 0; done < lengths[rank()]; done += most) {
        requests.push_back(MPI_REQUEST_NULL);
        YM_MPI(MPI_Isend(buffer.data() + done, static_cast<int>(std::min(most, lengths[rank()] - done)),
                         MPI_BYTE, 0, kTag, comm_, &requests.back()));
      }
    }
    Wait(std::move(requests), "texts gathered on rank 0");
    return rank() == 0 ? Split(buffer, begins, lengths) : std::vector<std::string>();
  }

 private:
  std::vector<int64_t> Lengths(const std::string& mine) {
    MpiCheckUsable(*state_);
    const int64_t length = static_cast<int64_t>(mine.size());
    std::vector<int64_t> lengths(static_cast<size_t>(size()));
    MPI_Request request = MPI_REQUEST_NULL;
    YM_MPI(MPI_Iallgather(&length, 1, MPI_INT64_T, lengths.data(), 1, MPI_INT64_T, comm_, &request));
    Wait({request}, "the other ranks");
    return lengths;
  }
  static std::vector<int64_t> Begins(const std::vector<int64_t>& lengths) {
    std::vector<int64_t> begins(lengths.size() + 1, 0);
    std::partial_sum(lengths.begin(), lengths.end(), begins.begin() + 1);
    return begins;
  }
  static std::vector<std::string> Split(const std::string& all, const std::vector<int64_t>& begins,
                                        const std::vector<int64_t>& lengths) {
    std::vector<std::string> out;
    for (size_t r = 0; r < lengths.size(); ++r) {
      out.push_back(all.substr(static_cast<size_t>(begins[r]), static_cast<size_t>(lengths[r])));
    }
    return out;
  }
  // Bytes [begin, begin + length) of root's text to all ranks.
  void Spread(std::string& text, int64_t begin, int64_t length, int root) {
    for (int64_t done = 0; done < length; done += state_->max_message_bytes) {
      MPI_Request request = MPI_REQUEST_NULL;
      YM_MPI(MPI_Ibcast(text.data() + begin + done,
                        static_cast<int>(std::min(state_->max_message_bytes, length - done)), MPI_BYTE, root,
                        comm_, &request));
      Wait({request}, StrCat("a text of rank ", root));
    }
  }
  void Wait(std::vector<MPI_Request> requests, const std::string& what) {
    MpiWait(*state_, requests, what, [this, missing = std::string()](size_t) mutable {
      if (missing.empty()) missing = RollCall();
      return missing;
    });
  }

  // Who is missing, after a deadline. A collective does not tell, so every rank that waits in one says so to
  // all others, and listens for a moment to who else does: they began to wait at about the same time.
  std::string RollCall() {
    std::vector<char> heard(static_cast<size_t>(size()), 0);
    heard[static_cast<size_t>(rank())] = 1;
    static const char kHere = 1;
    for (int r = 0; r < size(); ++r) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (r != rank()) YM_MPI(MPI_Isend(&kHere, 1, MPI_BYTE, r, kRollCallTag, comm_, &request));
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    }
    const double end = NowSeconds() + kRollCallSeconds;
    while (NowSeconds() < end) {
      int found = 0;
      MPI_Status status;
      YM_MPI(MPI_Iprobe(MPI_ANY_SOURCE, kRollCallTag, comm_, &found, &status));
      if (!found) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        continue;
      }
      char here = 0;
      YM_MPI(MPI_Recv(&here, 1, MPI_BYTE, status.MPI_SOURCE, kRollCallTag, comm_, MPI_STATUS_IGNORE));
      heard[static_cast<size_t>(status.MPI_SOURCE)] = 1;
    }
    std::vector<std::string> missing;
    size_t more = 0;
    for (int r = 0; r < size(); ++r) {
      if (heard[static_cast<size_t>(r)]) continue;
      if (missing.size() < kNamedRanks) {
        missing.push_back(StrCat("rank ", r));
      } else {
        ++more;
      }
    }
    if (missing.empty()) return "a rank that was late";
    return StrJoin(missing, ", ") + (more ? StrCat(" and ", more, " others") : "");
  }

  std::shared_ptr<MpiState> state_;
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace

std::unique_ptr<Agreement> MakeMpiAgreement(std::shared_ptr<MpiState> state) {
  return std::make_unique<MpiAgreement>(std::move(state));
}

}  // namespace yardmaster
