/* Stand-ins for libraries that some clients load in addition to the driver. GStreamer's plugin
 * offers no element without NVIDIA's decoder, and UCX is linked to NVIDIA's management library.
 * Each function refuses. */
#ifdef STANDIN_NVML
const char *nvmlErrorString(int error);
const char *nvmlErrorString(int error) {
    return error ? "there is no management library" : "no error";
}
#else
enum { NOT_SUPPORTED = 801 };
#define REFUSES(name)                                                                            \
    int name(void);                                                                              \
    int name(void) {                                                                             \
        return NOT_SUPPORTED;                                                                    \
    }
REFUSES(cuvidCreateDecoder)
REFUSES(cuvidCreateVideoParser)
REFUSES(cuvidCtxLock)
REFUSES(cuvidCtxLockCreate)
REFUSES(cuvidCtxLockDestroy)
REFUSES(cuvidCtxUnlock)
REFUSES(cuvidDecodePicture)
REFUSES(cuvidDestroyDecoder)
REFUSES(cuvidDestroyVideoParser)
REFUSES(cuvidGetDecoderCaps)
REFUSES(cuvidMapVideoFrame64)
REFUSES(cuvidParseVideoData)
REFUSES(cuvidUnmapVideoFrame64)
#endif
