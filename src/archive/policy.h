/*
 * What becomes of content that is not written any more: a code for what is cold, as the archive's `policy` says, or the
 * attribute user.ecfs.policy of the nearest directory above a file. Files keep their own code for what is written into
 * them; it is objects that move. Pure functions.
 */
#ifndef ECFS_ARCHIVE_POLICY_H
#define ECFS_ARCHIVE_POLICY_H

#include <glib.h>
#include <stdbool.h>
#include <stdint.h>

#define ECFS_POLICY_ATTRIBUTE "user.ecfs.policy"
#define ECFS_POLICY_MAX_BYTES 256

typedef struct EcfsPolicy {
    char *cold;         /* the code of what is cold; NULL: all stays as it is; owned */
    int64_t after_us;   /* cold is what was neither written nor read for so long */
    uint64_t min_bytes; /* smaller files stay as they are */
    unsigned reads;     /* cold content that was read so often is stored in the file's own code again; 0: never */
} EcfsPolicy;

/** Parses "none", or words of cold=CODE, after=DURATION, min=SIZE, reads=NUMBER; cold has to be there. Whether the code
 * is possible is not looked at. *ret_policy is for ecfs_policy_clear (). EINVAL. */
bool ecfs_policy_parse (const char *text, EcfsPolicy *ret_policy, GError **error);
void ecfs_policy_clear (EcfsPolicy *self);

/* What is known of a file. */
typedef struct EcfsPolicyFacts {
    uint64_t size;
    int64_t since_written_us; /* as the file's time says */
    int64_t since_read_us;    /* INT64_MAX: nobody knows of a read */
    unsigned n_reads;
} EcfsPolicyFacts;

typedef enum EcfsTemperature {
    ECFS_STAYS, /* where it is */
    ECFS_COLD,
    ECFS_HOT,
} EcfsTemperature;

EcfsTemperature ecfs_policy_judge (const EcfsPolicy *self, const EcfsPolicyFacts *facts);

#endif
