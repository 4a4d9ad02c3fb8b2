// File: src/train/open_data.h
#pragma once

#include <optional>
#include <string>

#include "src/config/config.h"
#include "src/data/fingerprint.h"
#include "src/data/packing.h"

namespace yardmaster {

struct OpenedData {
  SampleStream train;
  std::optional<SampleStream> validation;
};

struct DataFingerprints {
  DatasetFingerprint train, validation;  // validation: empty paths where there is none
};

// Opens and validates data.train and data.validation; a missing data set names the command that makes it.
// Computes the fingerprints of both parts when asked (reads every byte).
OpenedData OpenData(const Config& config, DataFingerprints* fingerprints);

SampleStream OpenValidation(const Config& config);  // data.validation alone

std::string DescribeData(const Config& config, const SampleStream& train, const SampleStream* validation,
                         const DataFingerprints& fingerprints);

}  // namespace yardmaster
