#pragma once

#include <memory>

#include "gipo/policy/device_networks.h"

namespace gipo {

std::unique_ptr<DeviceNetworks> make_vla_device_networks(const ModelSpec& spec, const PolicyRoom& room,
                                                         const DeviceBuffers& buffers, void* stream);

}  // namespace gipo
