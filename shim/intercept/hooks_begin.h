/* Kinds of hooks.def that the including file did not define expand to nothing. */
#ifndef HOOK_SUBMIT
#define HOOK_SUBMIT(symbol, mode, stream, reach, params, args)
#endif
#ifndef HOOK_RETRY
#define HOOK_RETRY(symbol, need, params, args)
#endif
#ifndef HOOK_BODY
#define HOOK_BODY(symbol)
#endif
#ifndef HOOK_RUNTIME
#define HOOK_RUNTIME(symbol)
#endif
#ifndef HOOK_LOADER
#define HOOK_LOADER(symbol)
#endif
