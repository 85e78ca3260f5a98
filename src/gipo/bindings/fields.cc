#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <nlohmann/json.hpp>

#include "gipo/bindings/arrays.h"
#include "gipo/bindings/bindings.h"
#include "gipo/core/error.h"
#include "gipo/data/encode.h"
#include "gipo/data/field_json.h"
#include "gipo/io/json_text.h"

namespace gipo::bindings {
namespace {

// Observations in fields, as worker.py describes them in JSON, to rows of floats.
class Encoder {
 public:
  explicit Encoder(const std::string& described)
      : fields_(fields_from_json(parse_json<nlohmann::json>(described, "fields"))) {}

  std::size_t size() const { return floats_of(fields_); }

  using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
  OwnedArray<float> rows(const std::vector<AnyArray>& columns, std::size_t n) const {
    GIPO_CHECK(columns.size() == fields_.size());
    std::vector<const std::byte*> at;
    for (std::size_t f = 0; f < columns.size(); ++f) {
      GIPO_CHECK(columns[f].nbytes() == n * fields_[f].bytes());
      at.push_back(static_cast<const std::byte*>(columns[f].data()));
    }
    std::vector<float> all(n * size());
    encode(fields_, at, n, all.data());
    return to_numpy(std::move(all), {n, size()});
  }

 private:
  Fields fields_;
};

}  // namespace

void add_fields(nb::module_& m) {
  nb::class_<Encoder>(m, "Encoder", "Observations in fields to rows of floats.")
      .def(nb::init<const std::string&>(), nb::arg("fields"))
      .def_prop_ro("size", &Encoder::size, "Values of a row.")
      .def("rows", &Encoder::rows, nb::arg("columns"), nb::arg("n"), "Rows [n, size] of an array [n, ...] per field.");
}

}  // namespace gipo::bindings
