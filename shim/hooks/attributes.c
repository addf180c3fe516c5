/* Attributes of launches and of kernel nodes (attributes.h). */
#include "hooks/attributes.h"

#include "hooks/body.h"
#include "hooks/submit_hooks.h"
#include "failpoint.h"

static unsigned means_of(CUlaunchAttributeID id, const CUlaunchAttributeValue *value) {
    if (!value || ac_attribute_is_harmless(id))
        return 0;
    switch (id) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        return value->programmaticStreamSerializationAllowed &&
                       !AC_FAILPOINT(programmatic_for_ordered)
                   ? AC_LAUNCH_EARLY
                   : 0;
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        return value->cooperative ? AC_LAUNCH_HOLDS : 0;
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return AC_FAILPOINT(launch_event_trusted) ? 0 : AC_LAUNCH_EVENT;
    default:
        return AC_LAUNCH_EARLY | AC_LAUNCH_HOLDS | AC_LAUNCH_UNKNOWN;
    }
}

static unsigned seen(CUlaunchAttributeID id, const CUlaunchAttributeValue *value) {
    unsigned means = means_of(id, value);
    if (means & AC_LAUNCH_EVENT &&
        ac_event_distrust((uint64_t)(uintptr_t)value->programmaticEvent.event))
        ac_count(ac_thread_tls, AC_COUNT_untracked_events);
    if (means & AC_LAUNCH_UNKNOWN) /* any event */
        ac_streams_unordered();
    return means;
}

unsigned ac_launch_seen(const CUlaunchConfig *config) {
    unsigned means = 0;
    for (unsigned i = 0; config && config->attrs && i < config->numAttrs; i++)
        means |= seen(config->attrs[i].id, &config->attrs[i].value);
    return means;
}

void ac_node_attribute_seen(CUlaunchAttributeID id, const CUlaunchAttributeValue *value) {
    if (seen(id, value) & AC_LAUNCH_HOLDS)
        ac_graphs_hold();
}
