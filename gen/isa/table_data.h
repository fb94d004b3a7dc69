// What the rows of gen/isa/table_data_*.cpp are made with; for these files alone.
//
// Next: gen/isa/table.h.
#pragma once

#include "gen/isa/table.h"

namespace flashptx::gen::rows {

constexpr bool A = true;   // needs sm_90a
constexpr bool G = false;  // plain sm_90

}  // namespace flashptx::gen::rows
