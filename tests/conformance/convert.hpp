#pragma once

#include <google/protobuf/any.pb.h>

#include <weft/rpc/core/metadata.hpp>
#include <weft/rpc/core/status.hpp>

#include "connectrpc/conformance/v1/service.pb.h"

// The suite's messages and weft's values.

namespace weft::conformance {

namespace v1 = connectrpc::conformance::v1;
using headers = google::protobuf::RepeatedPtrField<v1::Header>;

/// Binary values are base64 in the suite's messages.
rpc::metadata to_metadata(const headers& from);
void to_headers(const rpc::metadata& from, headers& to);
rpc::status to_status(const v1::Error& from);
v1::Error to_error(const rpc::status& from);

}  // namespace weft::conformance
