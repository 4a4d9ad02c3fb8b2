// File: src/config/validate.h
//
// What must hold between fields. Each error is added at the place of the field that is easiest to blame;
// nothing is said about fields that are wrong by themselves.
#pragma once

#include <functional>
#include <string>

#include "src/config/config.h"
#include "src/config/issues.h"
#include "src/config/places.h"

namespace yardmaster {

// Everything that does not depend on the number of ranks.
void ValidateConfig(const Config& config, const ConfigPlaces& places, Issues& issues);

// The layout on `world` ranks: world = dp x pp, ep divides dp, batches divide over dp.
void ValidateLayout(const Config& config, int world, const ConfigPlaces& places, Issues& issues);

// The model section alone, for models that come from elsewhere. `is_good(field)`: the field was read;
// `fail(field, message)` is told what is wrong.
void ValidateModel(const ModelConfig& model, const std::function<bool(const std::string&)>& is_good,
                   const std::function<void(const std::string&, const std::string&)>& fail);

}  // namespace yardmaster
