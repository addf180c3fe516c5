/* What ThreadSanitizer has to know, where it is built in.
 *
 * Work of the device runs on whatever thread completes it, and two pieces that the program left
 * unordered may write the same memory at once, as on a GPU.  That is for the race detector to
 * judge; ThreadSanitizer judges the simulator, so it looks away while a device's effect
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
/* A signal's handler has left the work, and with that what it had begun. */
#define SIM_DEVICE_LEFT SIM_DEVICE_BEGINS
/* Where it allows mappings, and nothing lies yet. */
#define SIM_FIRST_ADDRESS 0x7e8000000000ull
#define SIM_LAST_ADDRESS  0x7f8000000000ull
#else
#define SIM_DEVICE_BEGINS ((void)0)
#define SIM_DEVICE_ENDS   ((void)0)
#define SIM_DEVICE_LEFT   ((void)0)
/* Between what programs and libraries are loaded at. */
#define SIM_FIRST_ADDRESS (64ull << 40)
#define SIM_LAST_ADDRESS  (96ull << 40)
#endif

#endif
