// The smallest C++ program that uses the API. The header must declare the library's names unmangled.
#include <accelcache.hpp>
#include <iostream>

int main() {
    accel::allocator<double> allocator; // does not start CUDA
    int initialized = accel_initialized() || allocator != accel::allocator<char>();
    std::cout << "initialized: " << (initialized != 0) << '\n';
    return initialized != 0;
}
