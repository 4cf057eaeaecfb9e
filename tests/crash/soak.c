/*
 * Random operations on archives whose endpoints are in trouble, ended at a random step, as long as there is time: see
 * tests/soak. Each round has a seed, which is told where something is wrong and repeats it alone, as far as threads
 * do: script, faults and step are the same. Scripts do what users do with files, and with the archive: endpoints are
 * emptied, replaced and paused, zones shared, stripes damaged and repaired, the archive directory lost in the middle,
 * or an old copy of it put back and everything tried with that.
 *
 * After a round the archive is opened as the next mount would, with its endpoints well again: nothing that was promised
 * may be missing, nothing else be there (verdict.h). Then ecfs-fsck -y must bring everything to full redundancy, a
 * second run find nothing, and the tree be the same; in a quarter of the rounds the archive directory is thrown away,
 * and ecfs recover must bring the same tree back while as many endpoints are away as the code tolerates. Before that
 * all endpoints lose journal and snapshots now and then, a few between two checks.
 *
 * In every second round the archive is recovered elsewhere meanwhile, by recoveries that stop, are killed, fail and
 * freeze at each of their phases (elsewhere.h). Where none took it over, the above holds; where one did, the old
 * archive directory must be refused, and the new one have all that was answered with "stored", other files whole or
 * not, and nothing in part but below /recovered as .partial. ECFS_CRASH_TALK=1 has checks and recoveries say what they
 * find.
 */
#include "actor.h"
#include "elsewhere.h"
#include "generate.h"
#include "program/program.h"
#include "recovered.h"
#include "trees.h"
#include "verbs.h"
#include "verdict.h"

#include "../lab/flawed.h"

#include "codec/codec.h"
#include "program/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SEED_APART    1000
#define SEGMENT_BYTES 65536
#define MOUNT_ENDS_US 300000 /* with files that cannot be stored now */
#define CHILD_S       300    /* a round that takes longer hangs */
#define MAX_JOBS      64
#define TELL_EACH     100    /* rounds */
#define STALL_TIMEOUT "2s"   /* while operations hang on command, … */
#define PATIENT       "120s" /* … and afterwards, when none may fail for the machine's sake */

static const char *const codes[] = {"rs:4+2", "rs:3+2", "ldpc:3+3", "basic:4+4", "copies:3"};
#define N_CODES G_N_ELEMENTS (codes)

typedef struct Shared {
    Progress progress;
    CrashBoard board;
    bool moved; /* the archive is one that was recovered elsewhere */
} Shared;

/* What came of the rounds of one process. */
typedef struct Sums {
    unsigned n_rounds, n_crashes, n_recovery_crashes, n_power, n_troubled, n_recovered, n_failed;
    unsigned n_moved, n_blots;        /* rounds that another machine's archive survives, endpoints that lost journal */
    uint64_t n_operations, n_refused; /* answered with an error */
    ElsewhereSums elsewhere;
} Sums;

/* What the processes that do rounds share. */
typedef struct Work {
    _Atomic unsigned n_begun;
    unsigned n_rounds, first_seed; /* immutable, as the next ones; n_rounds: of all together */
    int64_t begun_us, until_us;    /* 0: no end but the number */
    bool show;
    Sums sums[MAX_JOBS];
} Work;

typedef struct Soak {
    char *place; /* holds all of these: */
    char *base;
    char *templates[N_CODES][2][2][2]; /* by code, commit = async, whether they have a key, and keep no logs */
    char *grave;
    char *roots, *own_roots;      /* without the endpoints */
    unsigned tolerances[N_CODES]; /* in endpoints */
    Shared *shared;
    const Round *round; /* the one under way */
    Script *script;     /* with what is done before */
    unsigned n_before;
    ElsewhereSums elsewhere;
    Sums *sums;
} Soak;

/* Children */

static char *flaws_path (const Soak *self, unsigned i)
{
    return g_strdup_printf ("%s/flaws-%u", self->base, i);
}

static int in_child (Soak *self, void (*work) (Soak *self), uint32_t at)
{
    const Round *round = self->round;
    bool alone = round->beside && round->loss != CRASH_LOSES_NOTHING;
    const CrashPlan plan = {.roots = alone ? self->own_roots : self->roots,
                            .grave = self->grave,
                            .at = at,
                            .moment = round->moment,
                            .loss = round->loss,
                            .seed = round->seed,
                            .board = &self->shared->board};
    pid_t child = begin_child (&plan);
    if (child == 0) {
        (void) alarm (CHILD_S);
        if (round->beside)
            elsewhere_hurry (round->seed / 8 % 2 == 0);
        work (self);
        _exit (0);
    }
    return end_child (child);
}

static EcfsConfig *make_flawed_config (const Soak *self)
{
    const Fixture fixture = {.base = self->base};
    EcfsConfig *config = make_config (&fixture, codes[self->round->code]);
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        EcfsConfigEndpoint *endpoint = g_ptr_array_index (config->endpoints, i);
        g_autofree char *flaws = flaws_path (self, i);
        g_autofree char *text =
            g_strdup_printf ("e%u=flaw+file://%s/e%u,stall_timeout=" STALL_TIMEOUT ",flaws=%s,logs=%s", i, self->base,
                             i, flaws, self->round->logless ? "no" : "yes");
        ecfs_endpoint_spec_free (endpoint->spec);
        endpoint->spec = ecfs_endpoint_spec_parse (text, NULL);
        g_assert_nonnull (endpoint->spec);
    }
    config->allow_double = true; /* of them, one code has more stripes than there are endpoints */
    config->segment_size = SEGMENT_BYTES;
    config->commit_async = self->round->async;
    g_free (config->policy);
    config->policy = g_strdup ("cold=copies:3 after=0s");
    return config;
}

static void make_template (Soak *self)
{
    Actor actor;
    g_autoptr (GError) error = NULL;
    g_autofree char *directory = g_build_filename (self->base, "archive", NULL);
    g_autoptr (EcfsConfig) config = make_flawed_config (self);
    EcfsKeeping keeping = self->round->keyed ? ECFS_KEEPING_SPLIT : ECFS_KEEPING_NONE;
    (void) ecfs_archive_init (directory, config, keeping, NULL, &error);
    g_assert_no_error (error);
    actor_open (&actor, self->base);
    do_script (&actor, self->script, 0, self->n_before, &self->shared->progress);
    actor_close (&actor);
}

static void run_script (Soak *self)
{
    Actor actor;
    if (self->round->beside) {
        g_log_set_always_fatal (G_LOG_FATAL_MASK); /* that it is an old copy is critical */
        ecfs_log_init (false, G_LOG_LEVEL_ERROR);
        actor_open_beside (&actor, self->base);
    } else {
        actor_open (&actor, self->base);
    }
    actor.patience_us = MOUNT_ENDS_US;
    do_script (&actor, self->script, self->n_before, self->script->len, &self->shared->progress);
}

static void recover (Soak *self)
{
    Actor actor;
    actor_show_endpoints (self->base);
    actor_open (&actor, self->base);
    wait_until_stored (&actor.fixture);
    actor_close (&actor);
}

static void settle (Soak *self)
{
    g_autofree char *wrong = verbs_settle (self->base);
    if (wrong != NULL)
        g_strlcpy (self->shared->progress.verdict, wrong, sizeof self->shared->progress.verdict);
}

static void settle_elsewhere (Soak *self)
{
    actor_show_endpoints (self->base);
    g_autofree char *wrong = elsewhere_settle (self->base, &self->elsewhere, &self->shared->moved);
    if (wrong != NULL)
        g_strlcpy (self->shared->progress.verdict, wrong, sizeof self->shared->progress.verdict);
}

static void judge (Soak *self)
{
    const Round *round = self->round;
    const Case fact = {.base = self->base,
                       .script = self->script,
                       .n_before = self->n_before,
                       .power = round->loss != CRASH_LOSES_NOTHING && self->shared->board.died != 0,
                       .may_lack_stripes = true, /* what fills them up may have been replaced */
                       .may_not_read = round->n_troubled > self->tolerances[round->code]};
    if (self->shared->moved)
        verdict_find_recovered (&fact, &self->shared->progress);
    else
        verdict_find (&fact, &self->shared->progress);
}

static bool has_operation (const Soak *self, OpKind kind)
{
    for (guint i = self->n_before; i < self->script->len; i++)
        if (((const Op *) self->script->pdata[i])->kind == kind)
            return true;
    return false;
}

static void check_and_recover (Soak *self)
{
    const Round *round = self->round;
    unsigned tolerance = self->tolerances[round->code], n_away = tolerance;
    for (guint i = self->n_before; i < self->script->len; i++) {
        OpKind kind = ((const Op *) self->script->pdata[i])->kind;
        if (kind == OP_RECODE)
            n_away = MIN (n_away, 1); /* the least that codes of scripts tolerate */
        else if (kind == OP_COOL)
            n_away = MIN (n_away, 2); /* as the policy's code */
        else if (kind == OP_EMPTY || kind == OP_READONLY || (kind == OP_WITHOUT && self->shared->moved))
            n_away = 0; /* others may have two stripes of an object */
    }
    bool is_whole = !has_operation (self, OP_WITHOUT) && !has_operation (self, OP_TAKE_OUT);
    const Recovered what = {.base = self->base,
                            .n_away = n_away,
                            .seed = round->seed,
                            .recover = round->recover,
                            .n_blot = round->recover && is_whole && round->seed / 16 % 2 == 0 ? tolerance : 0};
    recovered_judge (&what, &self->shared->progress);
}

/* Rounds */

static void change_config (const Soak *self, const char *section, const char *key, const char *value)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *directory = g_build_filename (self->base, "archive", NULL);
    const EcfsConfigChange change = {.section = (char *) section, .key = (char *) key, .value = (char *) value};
    (void) ecfs_config_rewrite (directory, &change, 1, &error);
    g_assert_no_error (error);
}

static void adjust_config (const Soak *self)
{
    for (unsigned i = 0; i < N_ENDPOINTS && self->round->n_zones > 0; i++) {
        g_autofree char *section = g_strdup_printf ("endpoint e%u", i);
        g_autofree char *zone = g_strdup_printf ("z%u", i % self->round->n_zones);
        change_config (self, section, "zone", zone);
    }
    g_autofree char *object_max = g_strdup_printf ("%u", 3 * SEGMENT_BYTES / 2);
    if (self->round->small_objects)
        change_config (self, "archive", "object_max", object_max);
}

static void put_back (Soak *self)
{
    remove_tree (self->base);
    remove_tree (self->grave);
    const Round *round = self->round;
    copy_tree (self->templates[round->code][round->async][round->keyed][round->logless], self->base);
    adjust_config (self);
    g_assert_cmpint (g_mkdir_with_parents (self->grave, 0700), ==, 0);
    *self->shared = (Shared){.board = {.died = 0}};
    self->shared->progress.n_begun = self->shared->progress.n_done = self->n_before;
}

static void set_flaws (Soak *self, bool on)
{
    for (unsigned i = 0; i < N_ENDPOINTS; i++) {
        g_autofree char *path = flaws_path (self, i);
        if (on && self->round->flaws[i] != NULL)
            g_assert_true (g_file_set_contents (path, self->round->flaws[i], -1, NULL));
        else
            (void) unlink (path);
    }
}

/* Whoever judges waits for endpoints however busy the machine is. */
static void be_patient (const Soak *self, const char *archive)
{
    g_autofree char *path = g_build_filename (self->base, archive, "ecfs.conf", NULL);
    g_autofree char *text = NULL;
    g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
    g_auto (GStrv) parts = g_strsplit (text, "stall_timeout = " STALL_TIMEOUT "\n", -1);
    g_autofree char *patient = g_strjoinv ("stall_timeout = " PATIENT "\n", parts);
    g_assert_cmpuint (g_strv_length (parts), >, N_ENDPOINTS / 2); /* some may have been replaced */
    g_assert_true (g_file_set_contents (path, patient, -1, NULL));
}

/* All that a failure takes to be understood. */
static void tell (Soak *self, const char *what, int status)
{
    const Round *round = self->round;
    const Progress *progress = &self->shared->progress;
    g_printerr ("seed %u, %s%s%s%s: %s, after %u of %u operations%s%s: %s\n", round->seed, codes[round->code],
                round->async ? ", async" : "", round->keyed ? ", with a key" : "",
                round->logless ? ", without logs" : "", what, progress->n_done - self->n_before,
                self->script->len - self->n_before, self->shared->board.died ? ", " : "",
                self->shared->board.died ? self->shared->board.where : "",
                progress->verdict[0] != '\0' ? progress->verdict
                : WIFSIGNALED (status)       ? g_strsignal (WTERMSIG (status))
                                             : "the process ended");
    g_printerr ("  loss %d at %u, recovery at %u, %u endpoints in trouble\n  %s\n", (int) round->loss, round->at,
                round->recovery_at, round->n_troubled, round->script);
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        if (round->flaws[i] != NULL)
            g_printerr ("  e%u:\n%s", i, round->flaws[i]);
    for (unsigned i = self->n_before; i < progress->n_done; i++)
        if (progress->codes[i] != 0)
            g_printerr ("  operation %u: %s\n", i - self->n_before + 1, g_strerror (progress->codes[i]));
    self->sums->n_failed++;
}

static bool is_good (Soak *self, const char *what, void (*work) (Soak *self))
{
    int status = in_child (self, work, 0);
    if (WIFEXITED (status) && WEXITSTATUS (status) == 0 && self->shared->progress.verdict[0] == '\0')
        return true;
    tell (self, what, status);
    return false;
}

static void add_elsewhere (ElsewhereSums *sum, const ElsewhereSums *one)
{
    sum->n_begun += one->n_begun;
    sum->n_recovered += one->n_recovered;
    sum->n_failed += one->n_failed;
    sum->n_killed += one->n_killed;
}

static void count_elsewhere (Soak *self)
{
    if (self->round->beside)
        add_elsewhere (&self->sums->elsewhere, &self->elsewhere);
    for (unsigned i = self->n_before; i < self->shared->progress.n_done; i++)
        self->sums->n_blots += ((const Op *) self->script->pdata[i])->kind == OP_BLOT;
}

static void run_round (Soak *self)
{
    const Round *round = self->round;
    put_back (self);
    set_flaws (self, true);
    if (round->beside)
        elsewhere_begin (self->base, self->roots);
    int status = in_child (self, run_script, round->at);
    if (round->beside)
        elsewhere_end (round->seed / 4 % 2 == 0, &self->elsewhere);
    set_flaws (self, false);
    count_elsewhere (self);
    bool died = self->shared->board.died != 0;
    self->sums->n_operations += self->shared->progress.n_begun - self->n_before;
    for (unsigned i = self->n_before; i < self->shared->progress.n_done; i++)
        self->sums->n_refused += self->shared->progress.codes[i] != 0;
    self->sums->n_crashes += died;
    self->sums->n_power += died && round->loss != CRASH_LOSES_NOTHING;
    self->sums->n_troubled += round->n_troubled > 0;
    if (!died && (!WIFEXITED (status) || WEXITSTATUS (status) != 0)) {
        tell (self, "the script", status);
        return;
    }
    if (!is_good (self, "a directory that was being moved", settle))
        return;
    be_patient (self, "archive");
    g_autofree char *other = g_strdup_printf ("other-%u", self->elsewhere.last);
    if (round->beside && self->elsewhere.last > 0)
        be_patient (self, other);
    if (round->beside && !is_good (self, "what is recovered elsewhere", settle_elsewhere))
        return;
    self->sums->n_moved += self->shared->moved;
    if (died && round->recovery_at > 0) {
        self->shared->board.died = 0;
        (void) in_child (self, recover, round->recovery_at); /* what it leaves is judged */
        self->sums->n_recovery_crashes += self->shared->board.died;
        self->shared->board.died = 1;
    }
    if (!is_good (self, "what is left", judge))
        return;
    if (is_good (self, "ecfs-fsck and ecfs recover", check_and_recover))
        self->sums->n_recovered += round->recover;
    self->sums->n_blots += self->shared->progress.n_blots;
}

static void run_seed (Soak *self, unsigned seed, bool show)
{
    g_autoptr (Round) round = round_new (seed, self->tolerances, N_CODES);
    g_autofree char *text = g_strconcat (SOAK_BEFORE, ";", round->script, NULL);
    self->round = round;
    self->script = script_new (text, SEED_APART);
    g_assert_cmpuint (self->script->len, <=, MAX_OPS);
    if (show)
        g_print ("seed %u: %s\n", seed, round->script);
    run_round (self);
    self->sums->n_rounds++;
    g_clear_pointer (&self->script, g_ptr_array_unref);
}

/* The whole */

static void make_templates (Soak *self)
{
    for (unsigned i = 0; i < N_CODES * 8; i++) {
        const Round round = {.code = i / 8, .async = i / 4 % 2 == 1, .keyed = i / 2 % 2 == 1, .logless = i % 2 == 1};
        self->round = &round;
        self->script = script_new (SOAK_BEFORE, SEED_APART);
        self->n_before = self->script->len;
        char *template = g_strdup_printf ("%s/template-%u", self->place, i);
        self->templates[round.code][round.async][round.keyed][round.logless] = template;
        g_assert_cmpint (g_mkdir_with_parents (self->base, 0700), ==, 0);
        g_assert_cmpint (in_child (self, make_template, 0), ==, 0);
        copy_tree (self->base, template);
        remove_tree (self->base);
        g_clear_pointer (&self->script, g_ptr_array_unref);
    }
}

static void set_up_soak (Soak *self)
{
    const char *directory =
        g_getenv ("TMPDIR") == NULL && access ("/dev/shm", W_OK) == 0 ? "/dev/shm" : g_get_tmp_dir ();
    self->place = g_strdup_printf ("%s/ecfs-soak-XXXXXX", directory);
    g_assert_nonnull (g_mkdtemp (self->place));
    self->base = g_build_filename (self->place, "run", NULL);
    self->grave = g_build_filename (self->place, "grave", NULL);
    self->roots = watched_roots (self->base);
    self->own_roots = g_build_filename (self->base, "archive", NULL);
    self->shared = mmap (NULL, sizeof *self->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    g_assert_true (self->shared != MAP_FAILED);
    for (unsigned i = 0; i < N_CODES; i++) {
        g_autoptr (GError) error = NULL;
        g_autoptr (EcfsCodec) codec = ecfs_codec_new (codes[i], &error);
        g_assert_no_error (error);
        unsigned each = (ecfs_codec_n (codec) + N_ENDPOINTS - 1) / N_ENDPOINTS; /* stripes at most */
        self->tolerances[i] = ecfs_codec_tolerance (codec) / each;
    }
    elsewhere_set_up ();
    make_templates (self);
}

static void tear_down_soak (Soak *self)
{
    remove_tree (self->place);
    munmap (self->shared, sizeof *self->shared);
    for (unsigned i = 0; i < N_CODES * 8; i++)
        g_free (self->templates[i / 8][i / 4 % 2][i / 2 % 2][i % 2]);
    g_free (self->place);
    g_free (self->base);
    g_free (self->grave);
    g_free (self->roots);
    g_free (self->own_roots);
}

/* Jobs: processes that do rounds beside each other, each in a place of its own */

static void do_rounds (Work *work, unsigned job)
{
    Soak soak = {.sums = &work->sums[job]};
    set_up_soak (&soak);
    for (;;) {
        unsigned n = work->n_begun++;
        bool over = work->until_us != 0 ? g_get_monotonic_time () >= work->until_us : n >= work->n_rounds;
        if (over)
            break;
        if (n > 0 && n % TELL_EACH == 0)
            g_print ("# %u rounds begun after %.0f s\n", n,
                     (double) (g_get_monotonic_time () - work->begun_us) / G_USEC_PER_SEC);
        run_seed (&soak, work->first_seed + n, work->show);
    }
    tear_down_soak (&soak);
}

/* One that ends otherwise is a failure by itself. */
static void do_jobs (Work *work, unsigned n_jobs)
{
    pid_t jobs[MAX_JOBS];
    (void) fflush (stdout); /* or each child has what is in it, too */
    for (unsigned i = 0; i < n_jobs; i++) {
        jobs[i] = fork ();
        g_assert_cmpint (jobs[i], >=, 0);
        if (jobs[i] > 0)
            continue;
        do_rounds (work, i);
        (void) fflush (stdout);
        _exit (0);
    }
    for (unsigned i = 0; i < n_jobs; i++)
        work->sums[i].n_failed += end_child (jobs[i]) != 0;
}

static Sums add_sums (const Work *work)
{
    Sums all = {.n_rounds = 0};
    for (unsigned i = 0; i < MAX_JOBS; i++) {
        const Sums *one = &work->sums[i];
        all.n_rounds += one->n_rounds;
        all.n_crashes += one->n_crashes;
        all.n_recovery_crashes += one->n_recovery_crashes;
        all.n_power += one->n_power;
        all.n_troubled += one->n_troubled;
        all.n_recovered += one->n_recovered;
        all.n_failed += one->n_failed;
        all.n_operations += one->n_operations;
        all.n_refused += one->n_refused;
        all.n_moved += one->n_moved;
        all.n_blots += one->n_blots;
        add_elsewhere (&all.elsewhere, &one->elsewhere);
    }
    return all;
}

static void tell_sums (const Work *work, const Sums *sums)
{
    double seconds = (double) (g_get_monotonic_time () - work->begun_us) / G_USEC_PER_SEC;
    g_print ("# %u rounds in %.1f s, %" G_GUINT64_FORMAT " operations (%" G_GUINT64_FORMAT
             " refused): %u crashes (%u of them power failures), %u more "
             "in the recovery, %u rounds with endpoints in trouble, %u recovered from the endpoints alone; %u failed\n",
             sums->n_rounds, seconds, sums->n_operations, sums->n_refused, sums->n_crashes, sums->n_power,
             sums->n_recovery_crashes, sums->n_troubled, sums->n_recovered, sums->n_failed);
    g_print ("# %u recoveries begun elsewhere beside the archive (%u succeeded, %u failed, %u killed), the archive of "
             "%u rounds taken over; journal and snapshots of %u endpoints damaged\n",
             sums->elsewhere.n_begun, sums->elsewhere.n_recovered, sums->elsewhere.n_failed, sums->elsewhere.n_killed,
             sums->n_moved, sums->n_blots);
}

static bool run_all (int n_rounds, int seconds, int seed, int n_jobs, bool show)
{
    Work *work = mmap (NULL, sizeof *work, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    g_assert_true (work != MAP_FAILED);
    int64_t now_us = g_get_monotonic_time ();
    work->n_rounds = (unsigned) n_rounds;
    work->first_seed = (unsigned) seed;
    work->begun_us = now_us;
    work->until_us = seconds > 0 ? now_us + seconds * G_USEC_PER_SEC : 0;
    work->show = show;
    do_jobs (work, (unsigned) CLAMP (n_jobs, 1, MAX_JOBS));
    Sums sums = add_sums (work);
    tell_sums (work, &sums);
    munmap (work, sizeof *work);
    return sums.n_failed == 0;
}

int main (int argc, char **argv)
{
    int n_rounds = 300, seconds = 0, seed = 1, n_jobs = 1;
    gboolean show = FALSE;
    const GOptionEntry options[] = {
        {"rounds", 'n', 0, G_OPTION_ARG_INT, &n_rounds, "so many rounds (300)", "N"},
        {"time", 't', 0, G_OPTION_ARG_INT, &seconds, "as many as there is time for, instead", "SECONDS"},
        {"seed", 's', 0, G_OPTION_ARG_INT, &seed, "of the first round, each next has one more (1)", "S"},
        {"jobs", 'j', 0, G_OPTION_ARG_INT, &n_jobs, "so many rounds beside each other (1)", "N"},
        {"show", 0, 0, G_OPTION_ARG_NONE, &show, "the operations of each round", NULL},
        G_OPTION_ENTRY_NULL};
    g_autoptr (GError) error = NULL;
    g_autoptr (GOptionContext) context = g_option_context_new (NULL);
    g_option_context_add_main_entries (context, options, NULL);
    if (!g_option_context_parse (context, &argc, &argv, &error)) {
        g_printerr ("%s\n", error->message);
        return 2;
    }
    ecfs_log_init (false, G_LOG_LEVEL_CRITICAL); /* warnings are what this provokes */
    g_log_set_always_fatal (G_LOG_FATAL_MASK | G_LOG_LEVEL_CRITICAL);
    ecfs_allow_many_files ();
    for (unsigned i = 0; i < N_CODES; i++)
        warm_up (codes[i]);
    flawed_register ();
    return run_all (n_rounds, seconds, seed, n_jobs, show) ? 0 : 1;
}
