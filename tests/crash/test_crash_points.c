/*
 * Scripts on an archive that end at their N-th step, N = 1, 2, ... until a run meets none: by SIGKILL, or by a power
 * failure that takes what is not durable; what is left is judged by a model. A failure says which step it was, and
 * ECFS_CRASH_AT=N with -p TEST repeats that one alone.
 *
 * ECFS_CRASH_POINTS=all takes every moment of every step, and every step of the recovery after it; ECFS_CRASH_POINTS=N
 * every N-th step or so. Otherwise each script meets one of the three losses, at every eightieth step: other ones each
 * day, and those of ECFS_SEED with it.
 */
#include "../lab/flawed.h"
#include "actor.h"
#include "program/program.h"
#include "steps.h"
#include "trees.h"
#include "verbs.h"
#include "verdict.h"

#include "program/program.h"

#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEED_APART    1000
#define SEGMENT_BYTES 65536

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED
#elif defined __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED
#endif
#endif

typedef enum ScenarioFlags {
    MAY_LACK_STRIPES = 1 << 0, /* what would fill them up is replaced before that */
    /* A publish with its quorum only is followed by the fsync of what fills it up, and so is the answer to close. */
    MAY_LACK_STRIPES_WITHOUT_POWER = 1 << 1,
    HEALS = 1 << 2,  /* all damage, in the end; and so does the mount behind a crash, as far as it is told of it */
    COSTLY = 1 << 3, /* fewer of its steps are taken */
    KEYED = 1 << 4,  /* endpoints share a key from the beginning on */
    LOSES = 1 << 5,  /* after each crash it is also seen what comes back without the machine and two endpoints */
} ScenarioFlags;

#define COSTLY_APART 6

typedef struct Scenario {
    const char *name;
    void (*adjust) (EcfsConfig *config);
    const char *before; /* done before steps are counted */
    const char *script;
    unsigned flags;
} Scenario;

#define BEFORE                                                                                                         \
    "create old; write old 0 60000; close old; create small; write small 0 300; close small; mkdir d;"                 \
    "create d/x; write d/x 0 20000; close d/x; link d/x also; setxattr small kept; mtime small 1000;"                  \
    "wait; sync"

#define NEW_FILES                                                                                                      \
    "create a; write a 0 300; close a; create d/b; write d/b 0 50000; write d/b 50000 50000; close d/b;"               \
    "create c; close c; create never; write never 0 5000; mkdir e; sync"
#define NAMES                                                                                                          \
    "mkdir m; mkdir m/n; symlink m/s old; link old m/l; rename small m/small; setxattr old first; mtime old 77;"       \
    "rename d e; unlink also; sync; removexattr m/small; rmdir m/n; unlink m/s; rename m/small small; unlink old;"     \
    "unlink m/l; rename small e/x; rmdir m; sync"
#define REPLACE                                                                                                        \
    "truncate old; write old 0 20000; write old 20000 30000; close old; truncate small; write small 0 100;"            \
    "write small 100 50; close small; truncate d/x; close d/x; create tmp; write tmp 0 30000; close tmp;"              \
    "rename tmp old; sync"
#define RENAME_EARLY "create tmp; write tmp 0 300; rename tmp small; write tmp 300 20; close tmp; sync"
#define REWRITE                                                                                                        \
    "open old; write old 1000 500; close old; open small; write small 100 500; resize small 50; close small;"          \
    "open old; write old 60000 10; resize old 60005; close old; sync"
#define APPEND                                                                                                         \
    "create log; write log 0 1000; flush log; write log 1000 100; flush log; write log 1100 100; flush log;"           \
    "write log 1200 2000; flush log; write log 3200 50; close log; open log; write log 3250 50; close log; sync"
#define FSYNC                                                                                                          \
    "create f; write f 0 5000; fsync f; write f 5000 5000; open old; write old 10 10; fsync old; write old 5 10;"      \
    "write old 60000 10; fsync f; sync"
#define OVERTAKEN                                                                                                      \
    "create a; write a 0 40000; begin a; write a 0 100; await a; close a; create b; write b 0 40000; begin b;"         \
    "rename b c; await b; close b; create u; write u 0 40000; begin u; unlink u; await u; close u; sync"
#define UNLINKED                                                                                                       \
    "create u; write u 0 1000; unlink u; write u 1000 1000; sync; close u; open old; write old 0 1000; unlink old;"    \
    "fsync old; close old; sync"
#define DELETE "unlink old; truncate small; write small 0 200; close small; remount; drain; sync"
#define HOLES                                                                                                          \
    "create h; write h 0 100; write h 1000000 100; close h; open h; write h 500000 10; close h; create n; resize n "   \
    "70000; close n; sync"
#define MISSING                                                                                                        \
    "hide 5; create a; write a 0 60000; close a; truncate old; write old 0 30000; close old; sync; show 5; wait; sync"
#define MISSING_REMOUNT                                                                                                \
    "hide 5; create a; write a 0 60000; close a; remount; open a; write a 0 100; close a; show 5; wait; sync"
#define QUEUED                                                                                                         \
    "hide 3; hide 4; hide 5; create a; write a 0 30000; close a; truncate a; write a 0 20000; close a; open a;"        \
    "write a 100 100; sync; close a; mtime a 5; rename a b; open b; write b 20000 50; resize b 50; write b 10 10; "    \
    "sync;"                                                                                                            \
    "fsync b; write b 5 10; close b; create c; write c 0 1000; close c; truncate c; write c 0 10; unlink c; close c; " \
    "sync"
#define BIG "create big; write big 0 300000; close big; truncate big; write big 0 250000; close big"
#define STREAM                                                                                                         \
    "create s; write s 0 200000; write s 200000 100000; close s; truncate old; write old 0 270000; "                   \
    "write old 1000 10; close old; create never; write never 0 300000; sync"
#define PUT "put new 60000; put d/y 100; put small 200; put old 70000; sync"
#define RECODE                                                                                                         \
    "recode old rs:4+1; recode old rs:4+2; recode small copies:2; recode d ldpc:3+3; recode old copies:2; sync"

/* Logs to packs, packs to packs, while files change. */
#define PACK                                                                                                           \
    "create a; write a 0 3000; close a; create b; write b 0 700; close b; link b c; setxattr b kept; create e;"        \
    "write e 0 100; close e; pack; truncate a; write a 0 500; close a; open b; write b 100 50; close b; "              \
    "rename c small; unlink e; pack; pack; sync"
/* What changes while it comes into a pack stays what it is then. */
#define PACK_BESIDE                                                                                                    \
    "create a; write a 0 3000; close a; create b; write b 0 700; close b; truncate a; write a 0 900; begin a; "        \
    "unlink b; rename small b; pack; await a; close a; recode b rs:4+1; recode a copies:2; pack; sync"

/* Into packs from staging, which are packed anew. */
#define TOGETHER                                                                                                       \
    "create a; write a 0 3000; close a; create b; write b 0 700; close b; truncate small; write small 0 150; "         \
    "close small; create d/e; write d/e 0 100; close d/e; mtime a 5; wait; truncate a; write a 0 500; close a; "       \
    "open b; write b 100 50; close b; link b c; rename c small; unlink d/e; wait; pack; sync"
/* What changes between its close and the pack. */
#define TOGETHER_BESIDE                                                                                                \
    "create a; write a 0 3000; close a; create b; write b 0 700; close b; create c; write c 0 900; close c; "          \
    "truncate a; write a 0 40; close a; unlink b; rename c b; open b; write b 10 10; create e; write e 0 100; close "  \
    "e; "                                                                                                              \
    "rename e small; recode a copies:2; fsync b; close b; wait; read a; sync"

/* By a policy for which all that is not read is cold: whole objects, and packs into packs, while files change. */
#define COOL                                                                                                           \
    "create a; write a 0 30000; close a; create b; write b 0 700; close b; cool; truncate a; write a 0 900; close a; " \
    "link b c; unlink b; rename small e; cool; pack; open c; write c 100 50; close c; cool; sync"
/* What changes while it is moved stays what it is then. */
#define COOL_BESIDE                                                                                                    \
    "create a; write a 0 3000; close a; create b; write b 0 30000; close b; truncate a; write a 0 900; begin a; "      \
    "unlink old; cool; await a; close a; truncate b; write b 0 100; close b; cool; pack; sync"

#define OTHER_KEY                                                                                                      \
    "create a; write a 0 30000; close a; way; wait; rotate; create b; write b 0 20000; close b; unlink small; sync"
#define FIRST_KEY "keyed; create b; write b 0 20000; close b; unlink small; sync"

#define REPAIR         "lose 0; damage 3; heal; sync"
#define LOST_DIRECTORY "mtime d/x 77; unlink small; recover; create a; write a 0 30000; close a; sync"
#define OLD_COPY       "backup; unlink old; truncate small; write small 0 100; close small; stale; put new 30000; sync"

#define FEW     "create old; write old 0 60000; close old; create small; write small 0 300; close small; wait; sync"
#define EMPTIED FEW "; empty 5; remount; drain; sync"
/* Zone a gets two stripes of each while zone c is away. */
#define CROWDED                                                                                                        \
    "hide 5; create old; write old 0 60000; close old; create more; write more 0 90000; close more; sync; "            \
    "show 5; wait; sync"

/* Five endpoints are enough then. */
static void doubled (EcfsConfig *config)
{
    config->allow_double = true;
}

/* Four endpoints in zone a, and one each in b and c, for three stripes. */
static void in_zones (EcfsConfig *config)
{
    g_free (config->code);
    config->code = g_strdup ("rs:2+1");
    config->small_file = 0;
    for (guint i = 0; i < config->endpoints->len; i++) {
        EcfsConfigEndpoint *endpoint = g_ptr_array_index (config->endpoints, i);
        g_free (endpoint->zone);
        endpoint->zone = g_strdup (i < 4 ? "a" : i == 4 ? "b" : "c");
    }
}

/* No endpoint keeps logs, so that small files are stored together. */
static void together (EcfsConfig *config)
{
    async (config);
    for (guint i = 0; i < config->endpoints->len; i++) {
        EcfsConfigEndpoint *endpoint = g_ptr_array_index (config->endpoints, i);
        g_autofree char *text = g_strdup_printf ("%s=flaw+%s,logs=no", endpoint->spec->name, endpoint->spec->url);
        ecfs_endpoint_spec_free (endpoint->spec);
        endpoint->spec = ecfs_endpoint_spec_parse (text, NULL);
        g_assert_nonnull (endpoint->spec);
    }
}

static void cools (EcfsConfig *config)
{
    g_free (config->policy);
    config->policy = g_strdup ("cold=rs:3+2 after=0s");
}

static const Scenario scenarios[] = {
    {"new-files", NULL, BEFORE, NEW_FILES, 0},
    {"names", NULL, BEFORE, NAMES, 0},
    {"replace", NULL, BEFORE, REPLACE, 0},
    {"rename-before-close", NULL, BEFORE, RENAME_EARLY, 0},
    {"rewrite", NULL, BEFORE, REWRITE, 0},
    {"append", NULL, BEFORE, APPEND, 0},
    {"fsync", NULL, BEFORE, FSYNC, 0},
    {"overtaken", NULL, BEFORE, OVERTAKEN, 0},
    {"unlinked", NULL, BEFORE, UNLINKED, 0},
    {"delete", NULL, BEFORE, DELETE, 0},
    {"holes", NULL, BEFORE, HOLES, 0},
    {"missing", NULL, BEFORE, MISSING, MAY_LACK_STRIPES_WITHOUT_POWER},
    {"missing-remount", NULL, BEFORE, MISSING_REMOUNT, MAY_LACK_STRIPES},
    {"big", NULL, BEFORE, BIG, 0},
    {"stream", NULL, "create old; write old 0 60000; close old; wait; sync", STREAM, 0},
    {"put", NULL, BEFORE, PUT, 0},
    {"recode", NULL, BEFORE, RECODE, 0},
    {"policy", cools, BEFORE, COOL, 0},
    {"policy-beside", cools, BEFORE, COOL_BESIDE, 0},
    {"policy-missing", cools, BEFORE, "hide 5; " COOL "; show 5; wait; cool; sync", MAY_LACK_STRIPES | COSTLY},
    {"pack", NULL, BEFORE, PACK, 0},
    {"pack-beside", NULL, BEFORE, PACK_BESIDE, 0},
    {"pack-missing", NULL, BEFORE, "hide 5; " PACK "; show 5; wait; pack; sync", MAY_LACK_STRIPES},
    {"repair", NULL, BEFORE, REPAIR, HEALS | COSTLY},
    {"recover", NULL, BEFORE, LOST_DIRECTORY, COSTLY},
    {"old-copy", NULL, BEFORE, OLD_COPY, COSTLY},
    {"empty-endpoint", doubled, FEW, "empty 5; sync", 0},
    {"remove-endpoint", doubled, EMPTIED, "remove 5; sync", 0},
    {"replace-endpoint", doubled, FEW, "replace 5 6; sync", COSTLY},
    {"move-apart", in_zones, CROWDED, "fsck; sync", COSTLY},
    {"key", NULL, BEFORE, FIRST_KEY, COSTLY | LOSES},
    {"other-key", NULL, BEFORE, OTHER_KEY, KEYED | LOSES},
    {"async-new-files", async, BEFORE, NEW_FILES, 0},
    {"async-replace", async, BEFORE, REPLACE, 0},
    {"async-rename-before-close", async, BEFORE, RENAME_EARLY, 0},
    {"async-rewrite", async, BEFORE, REWRITE, 0},
    {"async-append", async, BEFORE, APPEND, 0},
    {"async-fsync", async, BEFORE, FSYNC, 0},
    {"async-unlinked", async, BEFORE, UNLINKED, 0},
    {"async-queued", async, BEFORE, QUEUED, 0},
    {"together", together, BEFORE, TOGETHER, 0},
    {"together-beside", together, BEFORE, TOGETHER_BESIDE, 0},
    {"together-missing", together, BEFORE, "hide 5; " TOGETHER "; show 5; wait; pack; sync", MAY_LACK_STRIPES},
    {"together-queued", together, BEFORE, QUEUED, 0},
};

/* How many of the steps are taken. */
typedef struct Density {
    unsigned stride;          /* between steps */
    unsigned recovery_apart;  /* between steps after which recovery is interrupted too */
    unsigned recovery_stride; /* between the steps of that */
    bool all_moments;         /* of each step; otherwise one */
} Density;

/* Everything that parent and children share. */
typedef struct Shared {
    Progress progress;
    CrashBoard board;
} Shared;

typedef struct Run {
    const Scenario *scenario;
    CrashLoss loss;
    Density density;
    char *place;    /* holds all of these: */
    char *base;     /* where the archive is */
    char *template; /* a copy of it before the script */
    char *crashed;  /* one of after it */
    char *grave;
    char *roots;
    Script *script; /* with what is done before */
    unsigned n_before;
    bool ended; /* the script, and not by a crash */
    Shared *shared;
} Run;

/* Children */

/* Does @work in a child, which is to die at step @at (0: none). Returns how it ended; none outlives its run. */
static int in_child (Run *self, void (*work) (Run *self), unsigned at, CrashMoment moment)
{
    const CrashPlan plan = {.roots = self->roots,
                            .grave = self->grave,
                            .at = at,
                            .moment = moment,
                            .loss = self->loss,
                            .seed = at,
                            .board = &self->shared->board};
    pid_t child = begin_child (&plan);
    if (child == 0) {
        work (self);
        _exit (0);
    }
    return end_child (child);
}

static void make_template (Run *self)
{
    Actor actor;
    g_autoptr (GError) error = NULL;
    g_autofree char *directory = g_build_filename (self->base, "archive", NULL);
    const Fixture fixture = {.base = self->base, .directory = directory};
    g_autoptr (EcfsConfig) config = make_config (&fixture, CODE);
    config->segment_size = SEGMENT_BYTES;
    if (self->scenario->adjust != NULL)
        self->scenario->adjust (config);
    (void) ecfs_archive_init (directory, config, self->scenario->flags & KEYED ? ECFS_KEEPING_SPLIT : ECFS_KEEPING_NONE,
                              NULL, &error);
    g_assert_no_error (error);
    actor_open (&actor, self->base);
    do_script (&actor, self->script, 0, self->n_before, &self->shared->progress);
    actor_close (&actor);
}

static void run_script (Run *self)
{
    Actor actor;
    actor_open (&actor, self->base);
    do_script (&actor, self->script, self->n_before, self->script->len, &self->shared->progress);
}

static void tell (Run *self, const char *wrong)
{
    if (wrong != NULL)
        g_strlcpy (self->shared->progress.verdict, wrong, sizeof self->shared->progress.verdict);
}

static void settle (Run *self)
{
    g_autofree char *wrong = verbs_settle (self->base);
    tell (self, wrong);
}

static void lose (Run *self)
{
    const Case fact = {.base = self->base, .script = self->script, .n_before = self->n_before};
    g_autofree char *wrong = verbs_lose (self->base, 2, self->shared->progress.n_begun);
    tell (self, wrong);
    if (wrong == NULL)
        verdict_find_recovered (&fact, &self->shared->progress);
}

static void recover (Run *self)
{
    static const Op heal = {.kind = OP_HEAL};
    Actor actor;
    actor_show_endpoints (self->base);
    actor_open (&actor, self->base);
    wait_until_stored (&actor.fixture);
    if (self->scenario->flags & HEALS)
        (void) actor_do (&actor, &heal); /* what is lost of the queue is for ecfs-fsck */
    actor_close (&actor);
}

static void judge (Run *self)
{
    bool power = self->loss != CRASH_LOSES_NOTHING;
    unsigned lacking = power ? MAY_LACK_STRIPES | MAY_LACK_STRIPES_WITHOUT_POWER : MAY_LACK_STRIPES;
    const Case fact = {.base = self->base,
                       .script = self->script,
                       .power = power,
                       .healed = self->scenario->flags & HEALS && self->ended,
                       .may_lack_stripes = (self->scenario->flags & lacking) != 0};
    verdict_find (&fact, &self->shared->progress);
}

/* Runs */

static void put_back (Run *self, const char *state)
{
    remove_tree (self->base);
    remove_tree (self->grave);
    copy_tree (state, self->base);
    g_assert_cmpint (g_mkdir_with_parents (self->grave, 0700), ==, 0);
    self->shared->board = (CrashBoard){.died = 0};
    self->shared->progress.verdict[0] = '\0';
}

static bool assert_fine (Run *self, const char *story, int status)
{
    const Progress *progress = &self->shared->progress;
    if (WIFEXITED (status) && WEXITSTATUS (status) == 0 && progress->verdict[0] == '\0')
        return true;
    g_test_message ("%s, in operation %u of %u: %s", story, progress->n_begun - self->n_before,
                    self->script->len - self->n_before,
                    progress->verdict[0] != '\0' ? progress->verdict
                    : WIFSIGNALED (status)       ? strsignal (WTERMSIG (status))
                                                 : "a child died of it");
    g_test_fail ();
    return false;
}

static bool is_fine (Run *self, const char *story)
{
    return assert_fine (self, story, in_child (self, judge, 0, CRASH_BEFORE));
}

/* What is left comes back without the machine, which is then put back as it was. */
static bool comes_back (Run *self, const char *story)
{
    remove_tree (self->crashed);
    copy_tree (self->base, self->crashed);
    g_autofree char *both = g_strconcat (story, "; then the machine is lost", NULL);
    bool fine = assert_fine (self, both, in_child (self, lose, 0, CRASH_BEFORE));
    put_back (self, self->crashed);
    return fine;
}

/* After the crash that is told in @story, the recovery is interrupted at each of its steps. */
static void interrupt_recovery (Run *self, const char *story, CrashMoment moment)
{
    remove_tree (self->crashed);
    copy_tree (self->base, self->crashed);
    for (unsigned at = 1;; at += self->density.recovery_stride) {
        put_back (self, self->crashed);
        int status = in_child (self, recover, at, moment);
        bool died = self->shared->board.died != 0;
        g_autofree char *both = g_strdup_printf ("%s; then %s", story, self->shared->board.where);
        if ((!died && !assert_fine (self, both, status)) || !is_fine (self, both) || !died)
            return;
    }
}

/* False: the script met its end and no such step. */
static bool run_at (Run *self, unsigned at, CrashMoment moment)
{
    put_back (self, self->template);
    self->shared->progress.n_begun = self->shared->progress.n_done = self->n_before;
    int status = in_child (self, run_script, at, moment);
    bool died = self->shared->board.died != 0;
    g_autofree char *story = g_strdup_printf ("%s", died ? self->shared->board.where : "to the end");
    if (!died && !assert_fine (self, story, status))
        return false;
    self->ended = !died;
    if ((self->scenario->flags & LOSES) != 0 && !comes_back (self, story))
        return died;
    if (!assert_fine (self, story, in_child (self, settle, 0, CRASH_BEFORE)))
        return died;
    if (died && at % self->density.recovery_apart == self->density.recovery_apart / 2)
        interrupt_recovery (self, story, moment);
    else
        (void) is_fine (self, story); /* it has told */
    return died;
}

static bool run_moments (Run *self, unsigned at)
{
    if (!self->density.all_moments)
        return run_at (self, at, at % 2 == 0 ? CRASH_BEFORE : CRASH_HALFWAY);
    return run_at (self, at, CRASH_BEFORE) && run_at (self, at, CRASH_HALFWAY) && run_at (self, at, CRASH_AFTER);
}

static Script *whole_script (const Scenario *scenario, unsigned *ret_n_before)
{
    g_autofree char *text = g_strconcat (scenario->before, ";", scenario->script, "; end", NULL);
    Script *before = script_new (scenario->before, SEED_APART);
    *ret_n_before = before->len;
    g_ptr_array_unref (before);
    return script_new (text, SEED_APART);
}

static void set_up_run (Run *self, const Scenario *scenario, CrashLoss loss, Density density)
{
    char *place = g_dir_make_tmp ("ecfs-crash-XXXXXX", NULL);
    *self = (Run){.scenario = scenario,
                  .loss = loss,
                  .density = density,
                  .place = place,
                  .base = g_build_filename (place, "run", NULL),
                  .template = g_build_filename (place, "template", NULL),
                  .crashed = g_build_filename (place, "crashed", NULL),
                  .grave = g_build_filename (place, "grave", NULL)};
    self->roots = watched_roots (self->base);
    self->script = whole_script (scenario, &self->n_before);
    g_assert_cmpuint (self->script->len, <=, MAX_OPS);
    self->shared = mmap (NULL, sizeof *self->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    g_assert_true (self->shared != MAP_FAILED);
    g_assert_cmpint (g_mkdir_with_parents (self->base, 0700), ==, 0);
    g_assert_cmpint (in_child (self, make_template, 0, CRASH_BEFORE), ==, 0);
    copy_tree (self->base, self->template);
}

static void tear_down_run (Run *self)
{
    remove_tree (self->place);
    g_ptr_array_unref (self->script);
    munmap (self->shared, sizeof *self->shared);
    g_free (self->place);
    g_free (self->base);
    g_free (self->template);
    g_free (self->crashed);
    g_free (self->grave);
    g_free (self->roots);
}

typedef struct Test {
    const Scenario *scenario;
    CrashLoss loss;
} Test;

static Density density_of (CrashLoss loss, unsigned flags)
{
#ifdef SANITIZED
    static const Density part = {.stride = 37, .recovery_apart = 1000000, .recovery_stride = 1};
#else
    static const Density part = {.stride = 80, .recovery_apart = 31, .recovery_stride = 5};
#endif
    static const Density all = {.stride = 1, .recovery_apart = 3, .recovery_stride = 1, .all_moments = true};
    const char *points = g_getenv ("ECFS_CRASH_POINTS");
    if (g_strcmp0 (points, "all") == 0)
        return all;
    Density density = part;
    if (points != NULL)
        density.stride = (unsigned) MAX (1, atoi (points));
    /* Verbs of keys are killed at their steps by tests/integration; what the power takes is seen here alone. */
    bool costly = (flags & COSTLY) != 0 || ((flags & LOSES) != 0 && loss == CRASH_LOSES_NOTHING);
    density.stride += loss == CRASH_LOSES_NOTHING ? 0 : 14; /* the same steps, each also a crash of the process */
    density.stride *= costly ? COSTLY_APART : 1;
    return density;
}

/* Of the day, for a sample of steps that moves on. */
static unsigned seed_of_the_day (void)
{
    const char *seed = g_getenv ("ECFS_SEED");
    if (seed == NULL)
        seed = g_getenv ("ECFS_DAY");
    return seed != NULL ? (unsigned) atoi (seed) : (unsigned) (g_get_real_time () / (86400 * (int64_t) G_USEC_PER_SEC));
}

static void test_scenario (gconstpointer data)
{
    const Test *test = data;
    const char *only = g_getenv ("ECFS_CRASH_AT");
    Run run;
    Density density = density_of (test->loss, test->scenario->flags);
    set_up_run (&run, test->scenario, test->loss, density);
    unsigned seed = seed_of_the_day ();
    unsigned first = 1 + (seed + g_str_hash (test->scenario->name)) % density.stride; /* apart from other scripts' */
    unsigned at = only != NULL ? (unsigned) atoi (only) : first;
    int64_t begun_us = g_get_monotonic_time ();
    while (run_moments (&run, at) && only == NULL && !g_test_failed ())
        at += density.stride;
    g_test_message ("ECFS_SEED=%u: every %u. of %u steps in %.1f s", seed, density.stride, at,
                    (double) (g_get_monotonic_time () - begun_us) / 1e6);
    tear_down_run (&run);
}

int main (int argc, char **argv)
{
    static const char *const losses[] = {"kill", "power-takes-all", "power-takes-some"};
    static Test tests[G_N_ELEMENTS (scenarios)][G_N_ELEMENTS (losses)];
    g_test_init (&argc, &argv, NULL);
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what these tests provoke */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    ecfs_allow_many_files ();
    flawed_register ();
    warm_up (CODE);
    bool all_losses = g_getenv ("ECFS_CRASH_POINTS") != NULL || g_getenv ("ECFS_CRASH_AT") != NULL;
    for (size_t i = 0; i < G_N_ELEMENTS (scenarios); i++) {
        for (unsigned loss = 0; loss < G_N_ELEMENTS (losses); loss++) {
            if (!all_losses && (i + seed_of_the_day ()) % G_N_ELEMENTS (losses) != loss)
                continue;
            g_autofree char *path = g_strdup_printf ("/crash/%s/%s", losses[loss], scenarios[i].name);
            tests[i][loss] = (Test){.scenario = &scenarios[i], .loss = (CrashLoss) loss};
            g_test_add_data_func (path, &tests[i][loss], test_scenario);
        }
    }
    return g_test_run ();
}
