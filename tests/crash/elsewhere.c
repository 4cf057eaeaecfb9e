#include "elsewhere.h"

#include "actor.h"
#include "archive/lineage.h"
#include "recover/recover.h"
#include "recover/recover_priv.h"
#include "steps.h"
#include "trees.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define LOOK_US    500
#define RECOVERY_S 200 /* one that takes longer hangs */
#define PHASE_SIZE 32
#define AGAIN_US   150000 /* markers are read again, and claims renewed */
#define DEAD_US    400000 /* claims that do not move, for a recovery, … */
#define LAPSED_US  900000 /* … and for the archive that goes on */

typedef enum State { STATE_IDLE, STATE_RUNNING, STATE_HELD } State;

/* Which tick of a phase is which, for scripts. */
static const struct {
    const char *word, *phase;
} phases[] = {{"watching", "watching another recovery"},
              {"snapshot", "snapshot"},
              {"journal", "journal"},
              {"listing", "listing stripes"},
              {"stripes", "looking for stripes"},
              {"strays", "files that no journal mentions"},
              {"storing", "snapshot of the new catalog"},
              {"markers", "markers"}};

/* What the processes of a round share. */
typedef struct Shared {
    _Atomic bool begin, kill, stop, go, quit; /* orders; what is done is false again */
    _Atomic bool resume, cancel;              /* for the recovery, where it stands */
    _Atomic State state;
    _Atomic bool succeeded;         /* the recovery, and only its end is to come */
    char phase[PHASE_SIZE];         /* of the recovery to begin: where it stops; "nowhere": nowhere, … */
    unsigned nth, at;               /* … at which tick of that, and the step at which it dies; 0: none */
    _Atomic bool without[N_PLACES]; /* endpoints that it is not given */
    ElsewhereSums sums;             /* the manager's until it has ended */
    CrashBoard board;               /* of the recovery */
} Shared;

static Shared *shared;
static pid_t manager;

void elsewhere_set_up (void)
{
    shared = mmap (NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    g_assert_true (shared != MAP_FAILED);
}

void elsewhere_hurry (bool looks)
{
    if (looks)
        ecfs_lineage_again_us = AGAIN_US;
    ecfs_lineage_claim_us = LAPSED_US;
    ecfs_recover_renew_us = AGAIN_US;
    ecfs_recover_patience_us = DEAD_US;
    ecfs_recover_look_us = DEAD_US / 10;
}

/* The recovery, in a process of its own */

static char *other_place (const char *base, unsigned number)
{
    return g_strdup_printf ("%s/other-%u", base, number);
}

/* The endpoints that the archive has now, as they are from elsewhere. */
static EcfsConfig *read_config (const char *base)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *path = g_build_filename (base, "archive/ecfs.conf", NULL), *text = NULL;
    g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
    g_autofree char *here = g_strconcat (base, "/flaws-", NULL), *there = g_strconcat (base, "/other-flaws-", NULL);
    g_auto (GStrv) parts = g_strsplit (text, here, -1);
    g_autofree char *changed = g_strjoinv (there, parts);
    EcfsConfig *config = ecfs_config_parse (changed, path, &error);
    g_assert_no_error (error);
    for (guint i = config->endpoints->len; i-- > 0;) {
        const EcfsConfigEndpoint *endpoint = g_ptr_array_index (config->endpoints, i);
        unsigned position = (unsigned) g_ascii_strtoull (endpoint->spec->name + 1, NULL, 10);
        if (position < N_PLACES && shared->without[position])
            g_ptr_array_remove_index (config->endpoints, i);
    }
    return config;
}

static bool is_held (const char *phase)
{
    for (size_t i = 0; i < G_N_ELEMENTS (phases); i++)
        if (g_str_equal (phases[i].phase, phase) && g_str_equal (phases[i].word, shared->phase))
            return --shared->nth == 0;
    return false;
}

static bool tick (void *user, const char *phase, uint64_t n_done, uint64_t n_all)
{
    (void) user;
    (void) n_done;
    (void) n_all;
    if (is_held (phase)) {
        shared->state = STATE_HELD;
        while (!shared->resume && !shared->cancel)
            g_usleep (LOOK_US);
        shared->state = STATE_RUNNING;
    }
    if (!shared->cancel && g_str_equal (phase, "markers"))
        shared->sums.has_marked = true;
    return !shared->cancel;
}

static bool yes (void *user, const char *text)
{
    (void) user;
    (void) text;
    return true;
}

static void note (void *user, const char *text)
{
    if (g_getenv ("ECFS_CRASH_TALK") != NULL)
        g_printerr ("# elsewhere: %s\n", text);
    if (user != NULL)
        g_string_append_printf (user, "; %s", text);
}

static bool recover_at (const char *base, unsigned number, GString *told, GError **error)
{
    EcfsRecovered sums;
    g_autofree char *directory = other_place (base, number);
    g_autoptr (EcfsConfig) config = read_config (base);
    const EcfsRecover what = {
        .directory = directory, .config = config, .ask = yes, .tell = note, .tick = tick, .user = told};
    bool recovered = ecfs_archive_recover (&what, &sums, error);
    ecfs_recovered_clear (&sums);
    return recovered;
}

static void recover (const char *base, const char *roots)
{
    g_autoptr (GError) error = NULL;
    unsigned number = shared->sums.n_begun;
    g_autofree char *other = other_place (base, number), *all = g_strconcat (roots, ":", other, NULL);
    const CrashPlan plan = {.roots = all, .at = shared->at, .board = &shared->board};
    (void) alarm (RECOVERY_S);
    if (plan.at > 0)
        crash_arm (&plan);
    shared->succeeded = recover_at (base, number, NULL, &error);
    note (NULL, shared->succeeded ? "recovered" : error->message);
    _exit (0);
}

/* The manager: one process that has no threads, so that it may fork */

static void see_to_end (pid_t *recovery)
{
    int status;
    if (waitpid (*recovery, &status, WNOHANG) != *recovery)
        return;
    bool killed = !WIFEXITED (status);
    shared->sums.n_recovered += !killed && shared->succeeded;
    shared->sums.n_failed += !killed && !shared->succeeded;
    shared->sums.n_killed += killed;
    if (!killed && shared->succeeded) {
        shared->sums.last = shared->sums.n_begun;
        shared->sums.has_marked = false;
    }
    *recovery = 0;
    shared->state = STATE_IDLE;
}

static void begin_recovery (const char *base, const char *roots, pid_t *ret_recovery)
{
    shared->resume = shared->cancel = shared->succeeded = false;
    shared->board.died = 0;
    shared->sums.n_begun++;
    shared->state = STATE_RUNNING;
    *ret_recovery = fork ();
    g_assert_cmpint (*ret_recovery, >=, 0);
    if (*ret_recovery == 0)
        recover (base, roots);
}

static void obey (_Atomic bool *order, pid_t recovery, int signal)
{
    if (!*order)
        return;
    if (recovery > 0)
        (void) kill (recovery, signal);
    *order = false;
}

static void manage (const char *base, const char *roots)
{
    pid_t recovery = 0;
    while (!shared->quit || recovery > 0) {
        if (recovery > 0)
            see_to_end (&recovery);
        if (shared->begin) {
            begin_recovery (base, roots, &recovery);
            shared->begin = false;
        }
        obey (&shared->stop, recovery, SIGSTOP);
        obey (&shared->go, recovery, SIGCONT);
        obey (&shared->kill, recovery, SIGKILL);
        g_usleep (LOOK_US);
    }
    _exit (0);
}

void elsewhere_begin (const char *base, const char *roots)
{
    memset (shared, 0, sizeof *shared);
    manager = fork ();
    g_assert_cmpint (manager, >=, 0);
    if (manager != 0)
        return;
    elsewhere_hurry (true);
    g_log_set_always_fatal (G_LOG_FATAL_MASK);
    manage (base, roots);
}

static void order (_Atomic bool *what)
{
    *what = true;
    while (*what)
        g_usleep (LOOK_US);
}

static void await_end (void)
{
    while (shared->state != STATE_IDLE)
        g_usleep (LOOK_US);
}

void elsewhere_end (bool go_on, ElsewhereSums *ret_sums)
{
    order (&shared->go);
    if (go_on)
        shared->resume = true;
    else
        order (&shared->kill);
    shared->quit = true;
    g_assert_cmpint (end_child (manager), ==, 0);
    *ret_sums = shared->sums;
}

/* What scripts say */

static int begin_one (const Op *op)
{
    if (shared->state != STATE_IDLE)
        return EBUSY;
    g_strlcpy (shared->phase, op->path, sizeof shared->phase);
    shared->nth = (unsigned) op->a;
    shared->at = (unsigned) op->b;
    order (&shared->begin);
    while (!g_str_equal (shared->phase, "nowhere") && shared->state == STATE_RUNNING)
        g_usleep (LOOK_US);
    return 0;
}

static char *flaws_place (const char *base, unsigned endpoint)
{
    return g_strdup_printf ("%s/other-flaws-%u", base, endpoint);
}

/* For recoveries alone: an error of all that they write at an endpoint. */
static int spoil (const char *base, const Op *op)
{
    g_autofree char *path = flaws_place (base, (unsigned) op->a);
    g_autofree char *rules = g_strdup_printf ("write 1+ fail %u\nmark 1+ fail %u\nremove 1+ fail %u\n",
                                              (unsigned) op->b, (unsigned) op->b, (unsigned) op->b);
    return g_file_set_contents (path, op->b == 0 ? "" : rules, -1, NULL) ? 0 : EIO;
}

int elsewhere_do (const char *base, const Op *op)
{
    switch (op->kind) {
    case OP_ELSEWHERE:
        return begin_one (op);
    case OP_WITHOUT:
        shared->without[op->a] = true;
        return 0;
    case OP_SPOIL:
        return spoil (base, op);
    case OP_FREEZE:
        order (&shared->stop);
        g_usleep ((gulong) op->a * 1000);
        order (&shared->go);
        return 0;
    case OP_KILL:
        order (&shared->kill);
        await_end ();
        return 0;
    case OP_CANCEL:
        shared->cancel = true;
        await_end ();
        return 0;
    case OP_RESUME:
        shared->resume = true;
        return 0;
    default: /* outcome */
        shared->resume = true;
        await_end ();
        return 0;
    }
}

/* Afterwards */

/* 0: it goes on, when what a killed recovery claimed has lapsed. */
static int try_open (const char *directory, char **ret_why)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsArchive) archive = ecfs_archive_open (directory, 0, &error);
    bool started = archive != NULL && ecfs_archive_start (archive, &error), stored = false;
    for (int64_t until_us = ecfs_now_us () + PATIENCE_US; started && !stored && ecfs_now_us () < until_us;) {
        g_clear_error (&error);
        stored = ecfs_archive_store_journal (archive, NULL, NULL, &error);
        g_usleep (stored ? 0 : AGAIN_US / 10);
    }
    if (stored)
        return 0;
    *ret_why = g_strdup (error->message);
    return started ? EAGAIN : ecfs_errno (error);
}

static void move (const char *base, const char *from, const char *name)
{
    g_autofree char *to = g_build_filename (base, name, NULL);
    g_assert_cmpint (syscall (SYS_rename, from, to), ==, 0);
}

char *elsewhere_settle (const char *base, const ElsewhereSums *sums, bool *ret_moved)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (GString) told = g_string_new (NULL);
    g_autofree char *archive = g_build_filename (base, "archive", NULL), *why = NULL;
    g_autofree char *newest = sums->last == 0 ? NULL : other_place (base, sums->last);
    for (unsigned i = 0; i < N_PLACES; i++) {
        g_autofree char *flaws = flaws_place (base, i);
        (void) unlink (flaws); /* few have any */
    }
    int code = try_open (archive, &why);
    *ret_moved = false;
    if (newest != NULL && code != ESTALE)
        return g_strdup_printf ("the archive was recovered elsewhere, and opens for writing still: %s", why);
    if (newest != NULL) {
        g_clear_pointer (&why, g_free);
        code = try_open (newest, &why);
    }
    if (code != 0 && (code != ESTALE || sums->n_killed == 0 || !sums->has_marked))
        return g_strdup_printf ("no recovery made it an old copy, and it does not go on: %s", why);
    if (code != 0) { /* one was killed when it had taken over */
        g_autofree char *anew = other_place (base, sums->n_begun + 1);
        *shared = (Shared){.state = STATE_IDLE};
        if (!recover_at (base, sums->n_begun + 1, told, &error))
            return g_strdup_printf ("recover, once more: %s%s", error->message, told->str);
        g_free (newest);
        newest = g_steal_pointer (&anew);
    }
    *ret_moved = newest != NULL;
    if (newest != NULL) {
        move (base, archive, "archive.fenced");
        move (base, newest, "archive");
    }
    return NULL;
}
