/* What a way to locate peers is. */
#ifndef ECFS_LOCATE_LOCATE_PRIV_H
#define ECFS_LOCATE_LOCATE_PRIV_H

#include "locate/locate.h"

typedef struct EcfsLocateOps {
    /* @ttl_s 0: withdraws. */
    bool (*announce) (EcfsLocate *self, const char *address, unsigned ttl_s, int64_t deadline_us, GError **error);
    GPtrArray *(*find) (EcfsLocate *self, unsigned most, int64_t deadline_us, GError **error);
    void (*free) (EcfsLocate *self);
} EcfsLocateOps;

/* Base of what implements it. */
struct EcfsLocate {
    const EcfsLocateOps *ops;
};

#endif
