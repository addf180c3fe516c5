// The same from C++: the header declares what the library exports, without its names mangled.
#include <accelcache.hpp>
#include <iostream>

int main() {
    accel::allocator<double> allocator; // starts nothing
    int initialized = accel_initialized() || allocator != accel::allocator<char>();
    std::cout << "initialized: " << (initialized != 0) << '\n';
    return initialized != 0;
}
