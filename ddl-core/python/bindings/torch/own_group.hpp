// A group of DDL, which lives as long as somebody uses it.
#pragma once

#include "ddl.h"
#include "process.hpp"

namespace ddl_torch {

class OwnGroup {
 public:
  explicit OwnGroup(DDL_Group number) : number_(number) {}
  // Fails where DDL is finalised already, which has freed it.
  ~OwnGroup() {
    if (!process_.Forked()) static_cast<void>(ddl_group_free(number_));
  }
  OwnGroup(const OwnGroup&) = delete;
  OwnGroup& operator=(const OwnGroup&) = delete;

  DDL_Group number() const { return number_; }

 private:
  const DDL_Group number_;
  const OwnProcess process_;
};

}  // namespace ddl_torch
