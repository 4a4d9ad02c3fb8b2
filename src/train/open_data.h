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

// Opens and validates data.train and data.validation; a missing data set names the command that makes it.
// Computes the fingerprint of the training part when asked (reads every byte).
OpenedData OpenData(const Config& config, DatasetFingerprint* fingerprint);

SampleStream OpenValidation(const Config& config);  // data.validation alone

std::string DescribeData(const Config& config, const SampleStream& train, const SampleStream* validation,
                         const DatasetFingerprint& fingerprint);

}  // namespace yardmaster
