// File: src/config/places.h
#pragma once

#include <map>
#include <set>
#include <string>

#include "src/config/issues.h"

namespace yardmaster {

// Where the fields of a configuration were written, for errors that are found later than reading (cross-field
// checks, layouts, data). Keys are dotted: "optimizer.beta1", "optimizer".
struct ConfigPlaces {
  std::string file;
  std::map<std::string, Place> places;
  std::set<std::string>
      bad;  // fields that are missing or wrong, already reported: nothing more to say about them

  // Of the field, or of the nearest section around it, or of the file. Without a file: nothing but its name.
  Place Of(std::string path) const {
    for (;;) {
      const auto it = places.find(path);
      if (it != places.end()) return it->second;
      const size_t dot = path.rfind('.');
      if (dot == std::string::npos) return file.empty() ? Place{"configuration", 0, 0} : Place{file, 1, 1};
      path.resize(dot);
    }
  }
  bool IsGood(const std::string& path) const { return bad.count(path) == 0; }
};

}  // namespace yardmaster
