/* See failure.h. */
#include "read/failure.h"
#include "command.h"
#include "read/segments.h"
#include "read/recorded.h"

char *cmd_failure_text(const json_t *document) {
    const json_t *failure = json_object_get(document, "out_of_memory");
    char asked[CMD_FIGURE];
    if (!json_is_object(failure))
        return NULL;
    int64_t stack = json_integer_value(json_object_get(failure, "stack"));
    int64_t module = json_integer_value(json_object_get(failure, "module"));
    const char *site = stack > 0 ? cmd_recorded_site(document, stack) : NULL;
    return cmd_format("Device %lld: %s asked for %s%s%s%s, and %s.",
                      (long long)json_integer_value(json_object_get(failure, "device")),
                      cmd_module_name(document, module < 0 ? 0 : (unsigned)module),
                      cmd_text_bytes(asked, json_integer_value(json_object_get(failure, "bytes"))),
                      json_is_true(json_object_get(failure, "async")) ? " on a stream" : "", site ? " in " : "",
                      site ? site : "",
                      json_is_true(json_object_get(failure, "at_limit")) ? "the configured limit refused it"
                                                                          : "the device had no room for it");
}
