/* Attributes of kernel launches and kernel nodes that let the work do more than a plain launch
 * does.  This is the only interface that reads them. */
#ifndef AC_ATTRIBUTES_H
#define AC_ATTRIBUTES_H

#include <stdbool.h>

#include "device/cuda_abi.h"

enum {
    AC_LAUNCH_EARLY = 1,  /* start before the work ahead of it in its stream is done */
    AC_LAUNCH_HOLDS = 2,  /* hold its stream until the program acts elsewhere */
    AC_LAUNCH_EVENT = 4,  /* record an event while it runs */
    AC_LAUNCH_UNKNOWN = 8 /* an attribute that is not known here: it may mean all of these */
};

/* Returns the OR of the AC_LAUNCH_ values for the attributes of a launch; 0 for NULL.  An event
 * that one of the attributes records proves no order from then on.  Call it before the driver
 * gets the launch.  Any thread. */
unsigned ac_launch_seen(const CUlaunchConfig *config);

/* Records the effect of an attribute of a kernel node on the launches of graphs.  Call it before
 * the driver gets the attribute. */
void ac_node_attribute_seen(CUlaunchAttributeID id, const CUlaunchAttributeValue *value);

/* Bits, by id, of the attributes that mean none of the AC_LAUNCH_ values. */
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
