/* What the parts of a verdict share: verdict.c, verdict_key.c on the archive's key, verdict_places.c on endpoints that
 * take no stripes, and verdict_mount.c on mounts. */
#ifndef ECFS_VERBS_VERDICT_PRIV_H
#define ECFS_VERBS_VERDICT_PRIV_H

#include <json-glib/json-glib.h>
#include <stdbool.h>

/* Something that is not as it should be. */
typedef struct EcfsStatusProblem {
    const char *verdict;  /* a word or two */
    const char *kind;     /* a word for programs; status.h lists them */
    const char *endpoint; /* its name, where it is about one alone; NULL otherwise; borrowed */
    int check;            /* what `status --check` exits with */
    int64_t since;        /* seconds since 1970; 0: not known */
    char *reason;         /* owned, as the rest */
    char *meaning;
    char *advice;
    char *action; /* a command; NULL: there is none to type */
} EcfsStatusProblem;

typedef struct EcfsStatusVerdict {
    JsonObject *status;
    JsonObject *worst; /* of the problems so far; borrowed from them; NULL: none */
    JsonArray *problems;
    char *directory; /* as a shell takes it; owned */
    bool mounted;
} EcfsStatusVerdict;

/* Members of facts, which a mount of another version may not have: empty, 0, or NULL then. */

static inline const char *ecfs_verdict_text (JsonObject *object, const char *member)
{
    return json_object_get_string_member_with_default (object, member, "");
}

static inline int64_t ecfs_verdict_number (JsonObject *object, const char *member)
{
    return json_object_get_int_member_with_default (object, member, 0);
}

static inline JsonObject *ecfs_verdict_part (JsonObject *object, const char *member)
{
    JsonNode *node = json_object_get_member (object, member);
    return node != NULL && JSON_NODE_HOLDS_OBJECT (node) ? json_node_get_object (node) : NULL;
}

/** Takes the texts of @problem. */
void ecfs_verdict_add (EcfsStatusVerdict *self, const EcfsStatusProblem *problem);
/** How safe what is stored is now; g_free (). */
char *ecfs_verdict_safety (EcfsStatusVerdict *self);

/** Whether it does not answer, by the facts of an endpoint. */
bool ecfs_status_is_away (JsonObject *endpoint, bool mounted);
/** How bad it is that something is away: 2 where files cannot be read, or nothing more may be lost. */
int ecfs_verdict_badness (EcfsStatusVerdict *self, const char **ret_verdict);

/* verdict_places.c */

/** Whether what an endpoint has counts as lost, whatever it answers. */
bool ecfs_verdict_gives_up (JsonObject *endpoint);
/** Stripes at such endpoints. */
void ecfs_verdict_judge_given_up (EcfsStatusVerdict *self);
/** What was stored while too few endpoints took stripes, and does not become full by waiting. */
void ecfs_verdict_judge_no_place (EcfsStatusVerdict *self);

/* verdict_month.c */

/** Endpoints whose account allows no more this month. */
void ecfs_verdict_judge_spent (EcfsStatusVerdict *self);

/* verdict_key.c */

/** An 'ecfs key init' or 'rotate' that was interrupted. */
void ecfs_verdict_judge_key_begun (EcfsStatusVerdict *self);
/** Whether the key outlives what it is to, and no fewer can read than are to. */
void ecfs_verdict_judge_key (EcfsStatusVerdict *self);

/* verdict_mount.c */

/** A mount whose process lets everybody wait. */
void ecfs_verdict_judge_silent_mount (EcfsStatusVerdict *self);
/** A mount that follows, and cannot. */
void ecfs_verdict_judge_follow (EcfsStatusVerdict *self);
/** Whether there is such a one. */
bool ecfs_verdict_cannot_follow (EcfsStatusVerdict *self);
/** Whether it is of a directory for reading only: another machine writes the archive. */
bool ecfs_verdict_only_reads (EcfsStatusVerdict *self);
/** Advice and action on an endpoint that is away, there; @directory as a shell takes it. */
void ecfs_verdict_advise_reader (JsonObject *away, const char *directory, EcfsStatusProblem *problem);
/** At the end: there, takes commands back that are for who writes the archive. */
void ecfs_verdict_leave_to_writer (EcfsStatusVerdict *self);

#endif
