/* Annotations for ThreadSanitizer, if the build uses it.
 *
 * Device work runs on the thread that completes it.  As on a GPU, two pieces of unordered work may
 * write the same memory at once.  The race detector judges the program's work; ThreadSanitizer
 * judges the simulator.  It therefore ignores memory accesses while a device's effect
 * happens. */
#ifndef SIM_TSAN_H
#define SIM_TSAN_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SIM_TSAN 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define SIM_TSAN 1
#endif

#ifdef SIM_TSAN
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
#define SIM_DEVICE_BEGINS                                                                        \
    (AnnotateIgnoreReadsBegin(__FILE__, __LINE__), AnnotateIgnoreWritesBegin(__FILE__, __LINE__))
#define SIM_DEVICE_ENDS                                                                          \
    (AnnotateIgnoreWritesEnd(__FILE__, __LINE__), AnnotateIgnoreReadsEnd(__FILE__, __LINE__))
/* A signal handler has left the work, and with it the annotations that the work had begun. */
#define SIM_DEVICE_LEFT SIM_DEVICE_BEGINS
/* Range that ThreadSanitizer allows for mappings, and that is still empty at start. */
#define SIM_FIRST_ADDRESS 0x7e8000000000ull
#define SIM_LAST_ADDRESS  0x7f8000000000ull
#else
#define SIM_DEVICE_BEGINS ((void)0)
#define SIM_DEVICE_ENDS   ((void)0)
#define SIM_DEVICE_LEFT   ((void)0)
/* Range between the addresses at which programs and libraries are loaded. */
#define SIM_FIRST_ADDRESS (64ull << 40)
#define SIM_LAST_ADDRESS  (96ull << 40)
#endif

#endif
