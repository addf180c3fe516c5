/* What the attributes of a launch, or of a kernel node, let the work do that a plain launch does
 * not.  The only place where they are read. */
#ifndef AC_ATTRIBUTES_H
#define AC_ATTRIBUTES_H

#include <stdbool.h>

#include "device/cuda_abi.h"

enum {
    AC_LAUNCH_EARLY = 1,  /* start before the work ahead of it in its stream is done */
    AC_LAUNCH_HOLDS = 2,  /* hold its stream until the program does something else */
    AC_LAUNCH_EVENT = 4,  /* record an event while it runs */
    AC_LAUNCH_UNKNOWN = 8 /* something that is not known here: all of it */
};

/* OR of the above for the attributes of a launch; an event that one of them records proves no
 * order from here on.  Before the driver gets the launch.  NULL is no launch.  Any thread. */
unsigned ac_launch_seen(const CUlaunchConfig *config);

/* For a kernel node, before the driver gets the attribute: what its graph may do from here on is
 * kept. */
void ac_node_attribute_seen(CUlaunchAttributeID id, const CUlaunchAttributeValue *value);

/* Attributes that mean none of the above, by their ids. */
#define AC_ATTRIBUTES_HARMLESS                                                                   \
    (1u << CU_LAUNCH_ATTRIBUTE_IGNORE | 1u << CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW |         \
     1u << CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY |                                          \
     1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION |                                               \
     1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE |                            \
     1u << CU_LAUNCH_ATTRIBUTE_PRIORITY | 1u << CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP |        \
     1u << CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN |                                                 \
     1u << CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION |                                     \
     1u << CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE |                                    \
     1u << CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT |                                \
     1u << CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING)

static inline bool ac_attribute_is_harmless(CUlaunchAttributeID id) {
    return id < 32 && (AC_ATTRIBUTES_HARMLESS >> id & 1);
}

#endif
