// The same from C++: the header declares what the library exports, without its names mangled.
#include <accelcache.h>
#include <iostream>

int main() {
    int initialized = accel_initialized();
    std::cout << "initialized: " << (initialized != 0) << '\n';
    return initialized != 0;
}
