#include "verbs.h"

#include "archive/keys.h"
#include "ecfs/ecfs.h"
#include "object/layout.h"
#include "packing/packing.h"
#include "recover/recover.h"
#include "trees.h"
#include "verbs/drain.h"
#include "verbs/recode.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Moving directories */

static char *place (const char *base, const char *name)
{
    return g_build_filename (base, name, NULL);
}

static bool is_there (const char *base, const char *name)
{
    g_autofree char *path = place (base, name);
    return g_file_test (path, G_FILE_TEST_EXISTS);
}

/* Straight to the kernel: that is no step of the archive. */
static void move (const char *base, const char *from, const char *to)
{
    g_autofree char *here = place (base, from), *there = place (base, to);
    g_assert_cmpint (syscall (SYS_rename, here, there), ==, 0);
}

/* Nor is what is removed one, elsewhere. */
static void discard (const char *base, const char *name)
{
    g_autofree char *path = place (base, "discarded");
    if (!is_there (base, name))
        return;
    remove_tree (path);
    move (base, name, "discarded");
    remove_tree (path);
}

/* Endpoints */

static int endpoint_work (Actor *self, const char *name, OpKind kind)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *left = NULL;
    EcfsArchive *archive = self->fixture.archive;
    const EcfsDrainHere what = {.name = name};
    bool done;
    switch (kind) {
    case OP_EMPTY:
        done = ecfs_drain_here (archive, &what, &error);
        break;
    case OP_TAKE_OUT:
        done = ecfs_archive_remove_endpoint (archive, name, &left, &error);
        break;
    default:
        done = ecfs_archive_set_endpoint_state (
            archive, name, kind == OP_READONLY ? ECFS_ENDPOINT_READONLY : ECFS_ENDPOINT_ACTIVE, &error);
        break;
    }
    return done ? 0 : ecfs_errno (error);
}

static bool add_endpoint (Actor *self, const char *name, const char *path, GError **error)
{
    g_autofree char *text = g_strdup_printf ("%s=file://%s", name, path);
    EcfsEndpointSpec *spec = ecfs_endpoint_spec_parse (text, error);
    g_autoptr (EcfsConfigEndpoint) endpoint = spec == NULL ? NULL : ecfs_config_endpoint_new (spec, error);
    (void) syscall (SYS_mkdir, path, 0700); /* somebody else made it before */
    return endpoint != NULL && ecfs_archive_endpoint_add (self->fixture.archive, endpoint, error);
}

/* One that the catalog knows and ecfs.conf does not was being added when the process died. */
static bool is_in_use (Actor *self, const char *name)
{
    const EcfsArchiveEndpoint *endpoint = ecfs_archive_endpoint_named (self->fixture.archive, name, NULL);
    return endpoint != NULL && endpoint->endpoint != NULL;
}

/* Each part is left out that an earlier call has done. */
static int replace (Actor *self, const Op *op)
{
    g_autofree char *old = g_strdup_printf ("e%u", (unsigned) op->a), *new = g_strdup_printf ("e%u", (unsigned) op->b);
    g_autofree char *path = place (self->fixture.base, new);
    g_autoptr (GError) error = NULL;
    EcfsArchive *archive = self->fixture.archive;
    const char *const towards[] = {new, NULL};
    const EcfsDrainHere what = {.name = old, .towards = towards};
    g_autofree char *left = NULL;
    bool done =
        (is_in_use (self, new) || add_endpoint (self, new, path, &error)) &&
        (ecfs_archive_endpoint_named (archive, old, NULL) == NULL ||
         (ecfs_drain_here (archive, &what, &error) && ecfs_archive_remove_endpoint (archive, old, &left, &error)));
    return done ? 0 : ecfs_errno (error);
}

/* Files */

static int put_one (Actor *self, const Op *op)
{
    g_autofree char *source = g_build_filename (self->fixture.base, "source", NULL);
    g_autoptr (GBytes) bytes = script_bytes (op->seed, op->a);
    g_autoptr (GError) error = NULL;
    if (!g_file_set_contents (source, g_bytes_get_data (bytes, NULL), (gssize) op->a, &error))
        return EIO;
    actor_suspend (self);
    Ecfs *ecfs = ecfs_open (self->fixture.directory, ECFS_OPEN_WRITE, &error);
    const char *const sources[] = {source, NULL};
    bool ok = ecfs != NULL && ecfs_put (ecfs, sources, op->path, NULL, &error);
    ecfs_close (ecfs);
    actor_resume (self);
    return ok ? 0 : ecfs_errno (error);
}

static int recode (Actor *self, const Op *op)
{
    g_autoptr (GError) error = NULL;
    const EcfsRecodeHere what = {.path = op->path, .code = op->other};
    return ecfs_recode_here (self->fixture.archive, &what, &error) ? 0 : ecfs_errno (error);
}

/* What the archive's policy finds cold goes to its code. */
static int cool (Actor *self)
{
    g_autoptr (GError) error = NULL;
    const EcfsRecodeHere what = {.path = "/"};
    return ecfs_policy_here (self->fixture.archive, &what, &error) ? 0 : ecfs_errno (error);
}

/* All that is in logs and packs comes into packs. */
static int pack (Actor *self)
{
    static const EcfsObjectKind kinds[] = {ECFS_OBJECT_LOG, ECFS_OBJECT_PACK};
    EcfsCatalog *catalog = ecfs_archive_catalog (self->fixture.archive);
    EcfsPacking packing = {.archive = self->fixture.archive};
    g_autoptr (GArray) objects = g_array_new (FALSE, FALSE, sizeof (int64_t));
    g_autoptr (GError) error = NULL;
    for (size_t i = 0; i < G_N_ELEMENTS (kinds); i++) {
        g_autoptr (GArray) some = ecfs_catalog_objects_of_kind (catalog, kinds[i], false, 0, G_MAXUINT, &error);
        g_assert_no_error (error);
        g_array_append_vals (objects, some->data, some->len);
    }
    return ecfs_pack_objects (&packing, (const int64_t *) (void *) objects->data, objects->len, &error)
               ? 0
               : ecfs_errno (error);
}

/* Checking */

static int64_t member (const char *summary, const char *name)
{
    g_autofree char *key = g_strdup_printf ("\"%s\":", name);
    const char *found = strstr (summary, key);
    return found == NULL ? 0 : g_ascii_strtoll (found + strlen (key), NULL, 10);
}

static void talk (void *user, const char *json)
{
    (void) user;
    if (g_getenv ("ECFS_CRASH_TALK") != NULL)
        g_printerr ("# %s\n", json);
}

char *verbs_check (const char *base, unsigned flags)
{
    static const char *const bad[] = {"objects_left", "objects_found", "stripes_unknown", "catalog_problems"};
    g_autofree char *directory = place (base, "archive");
    g_autoptr (GError) error = NULL;
    Ecfs *ecfs = ecfs_open (directory, ECFS_OPEN_WRITE, &error);
    const EcfsFsck what = {.flags = flags, .found = talk};
    g_autofree char *summary = ecfs == NULL ? NULL : ecfs_fsck (ecfs, &what, &error);
    ecfs_close (ecfs);
    if (summary == NULL)
        return g_strdup (error->message);
    for (size_t i = 0; i < G_N_ELEMENTS (bad); i++)
        if (member (summary, bad[i]) > 0)
            return g_steal_pointer (&summary);
    return NULL;
}

static int check (Actor *self)
{
    actor_suspend (self);
    g_autofree char *left = verbs_check (self->fixture.base, ECFS_FSCK_DEEP | ECFS_FSCK_REPAIR);
    actor_resume (self);
    return left == NULL ? 0 : EUCLEAN;
}

/* Recovering */

static void ignore_told (void *user, const char *text)
{
    g_string_append_printf (user, "; %s", text);
}

static bool go_on (void *user, const char *phase, uint64_t n_done, uint64_t n_all)
{
    return true;
}

/* Some endpoints go away for good; those that stay are in the configuration. */
static void lose_endpoints (EcfsConfig *config, unsigned n_away, unsigned seed)
{
    for (unsigned i = 0; i < n_away; i++)
        g_ptr_array_remove_index (config->endpoints, (seed * 7 + i) % config->endpoints->len);
}

static EcfsConfig *lost_config (const char *base)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *path = place (base, "archive.lost/ecfs.conf"), *text = NULL;
    g_assert_true (g_file_get_contents (path, &text, NULL, NULL));
    EcfsConfig *config = ecfs_config_parse (text, path, &error);
    g_assert_no_error (error);
    return config;
}

/* NULL, or why not; g_free (). @told: what it tells. */
static char *recover_without (const char *base, unsigned n_away, unsigned seed, EcfsRecovered *ret_sums, GString *told)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *directory = place (base, "archive");
    if (is_there (base, "archive.lost"))
        discard (base, "archive"); /* which an earlier call began */
    else
        move (base, "archive", "archive.lost");
    g_autoptr (EcfsConfig) config = lost_config (base);
    lose_endpoints (config, n_away, seed);
    const EcfsRecover what = {
        .directory = directory, .config = config, .force = true, .tell = ignore_told, .tick = go_on, .user = told};
    bool recovered = ecfs_archive_recover (&what, ret_sums, &error);
    ecfs_recovered_clear (ret_sums);
    if (!recovered)
        return g_strdup_printf ("recover: %s%s", error->message, told->str);
    discard (base, "archive.lost");
    return NULL;
}

char *verbs_lose (const char *base, unsigned n_away, unsigned seed)
{
    EcfsRecovered sums;
    g_autoptr (GString) told = g_string_new (NULL);
    return recover_without (base, n_away, seed, &sums, told);
}

char *verbs_recover (const char *base, unsigned n_away, unsigned seed)
{
    EcfsRecovered sums;
    g_autoptr (GString) told = g_string_new (NULL);
    char *wrong = recover_without (base, n_away, seed, &sums, told);
    if (wrong != NULL)
        return wrong;
    return sums.n_lost > 0 || sums.n_hinted > 0 || sums.n_set_apart > 0 || sums.n_unfinished > 0
               ? g_strdup_printf ("recover did not find all%s", told->str)
               : NULL;
}

static int lose_directory (Actor *self)
{
    int code = actor_wait (self);
    if (code != 0)
        return code;
    actor_suspend (self);
    crash_sync ();
    g_autofree char *wrong = verbs_recover (self->fixture.base, 0, 0);
    if (wrong != NULL)
        g_error ("%s", wrong);
    actor_resume (self);
    return 0;
}

/* Old copies */

static int back_up (Actor *self)
{
    g_autofree char *from = place (self->fixture.base, "archive"), *to = place (self->fixture.base, "backup");
    actor_suspend (self);
    remove_tree (to);
    copy_tree (from, to);
    actor_resume (self);
    self->backed_up = ecfs_catalog_sequence (ecfs_archive_catalog (self->fixture.archive));
    return 0;
}

static void list_below (const char *path, void (*each) (void *user, const char *path), void *user)
{
    const char *name;
    g_autoptr (GDir) dir = g_dir_open (path, 0, NULL);
    while (dir != NULL && (name = g_dir_read_name (dir)) != NULL) {
        g_autofree char *child = g_build_filename (path, name, NULL);
        if (g_file_test (child, G_FILE_TEST_IS_DIR))
            list_below (child, each, user);
        else
            each (user, child);
    }
}

void verbs_stored (const char *base, void (*each) (void *user, const char *path), void *user)
{
    for (unsigned i = 0; i < N_PLACES; i++) {
        g_autofree char *here = g_strdup_printf ("%s/e%u", base, i), *away = g_strconcat (here, ".away", NULL);
        list_below (here, each, user);
        list_below (away, each, user);
    }
}

static void add_path (void *user, const char *path)
{
    g_hash_table_add (user, g_strdup (path));
}

static void cross_out (void *user, const char *path)
{
    g_hash_table_remove (user, path);
}

/* None of these may do anything: each is refused, or has nothing to do. */
static void try_to_change (Ecfs *ecfs, const char *base)
{
    g_autofree char *source = place (base, "backup/ecfs.conf"), *left = NULL;
    const char *const sources[] = {source, NULL};
    (void) ecfs_put (ecfs, sources, "put-by-an-old-copy", NULL, NULL);
    (void) ecfs_recode (ecfs, "/", "copies:2", NULL, NULL);
    (void) ecfs_set_endpoint_state (ecfs, "e0", "readonly", NULL);
    (void) ecfs_drain (ecfs, "e1", NULL, NULL, NULL);
    (void) ecfs_remove_endpoint (ecfs, "e1", &left, NULL);
}

static void prune (Ecfs *ecfs)
{
    const EcfsFsck what = {.flags = ECFS_FSCK_DEEP | ECFS_FSCK_REPAIR | ECFS_FSCK_PRUNE, .prune_age_us = 1};
    g_free (ecfs_fsck (ecfs, &what, NULL)); /* it may say what it likes */
}

static void use_old_copy (const char *base)
{
    g_autoptr (GError) error = NULL;
    g_autofree char *directory = place (base, "archive");
    g_autoptr (Ecfs) writing = ecfs_open (directory, ECFS_OPEN_WRITE, &error);
    if (writing != NULL) {
        try_to_change (writing, base);
        prune (writing);
        g_error ("an old copy of the archive directory opens for writing");
    }
    if (ecfs_errno (error) != ESTALE)
        g_error ("an old copy of the archive directory is refused for another reason: %s", error->message);
    g_autoptr (Ecfs) reading = ecfs_open (directory, 0, NULL);
    if (reading == NULL)
        return;
    try_to_change (reading, base);
    prune (reading);
}

static void assert_no_loss (const char *base, GHashTable *names)
{
    GHashTableIter iter;
    gpointer path;
    verbs_stored (base, cross_out, names);
    g_hash_table_iter_init (&iter, names);
    if (g_hash_table_iter_next (&iter, &path, NULL))
        g_error ("an old copy of the archive directory removed %u files from endpoints: %s", g_hash_table_size (names),
                 (const char *) path);
}

/* Somebody restores the backup, and everything is tried with it; then the archive directory itself is found again. */
static int restore_old (Actor *self)
{
    const char *base = self->fixture.base;
    int code = self->backed_up != 0 ? actor_wait (self) : ENOENT;
    if (code != 0 || ecfs_catalog_sequence (ecfs_archive_catalog (self->fixture.archive)) <= self->backed_up)
        return code != 0 ? code : ENODATA; /* nothing has happened since */
    g_autoptr (GHashTable) names = g_hash_table_new_full (g_str_hash, g_str_equal, g_free, NULL);
    actor_suspend (self);
    verbs_stored (base, add_path, names);
    crash_sync ();
    g_autofree char *backup = place (base, "backup"), *copy = place (base, "archive.old");
    discard (base, "archive.old");
    copy_tree (backup, copy);
    move (base, "archive", "archive.newer");
    move (base, "archive.old", "archive");
    use_old_copy (base);
    crash_sync ();
    discard (base, "archive");
    move (base, "archive.newer", "archive");
    assert_no_loss (base, names);
    actor_resume (self);
    return 0;
}

/* Keys */

static const EcfsKeyWay split = {.kind = "split"};
static const EcfsKeyWay code = {.kind = "code", .secret = "AAAA-BBBB-CCCC-DDDD-EEEE-FFFF-GGGG-HHHH"};
static const EcfsKeyRotation rotation = {.way = &code};

/* Of the archive that is not open. */
static bool change_key (const char *directory, OpKind kind, GError **error)
{
    if (kind == OP_ROTATE)
        return ecfs_key_rotate (directory, &rotation, error);
    if (kind == OP_KEYED)
        return ecfs_key_init (directory, &split, NULL, error);
    g_autoptr (Ecfs) ecfs = ecfs_open (directory, ECFS_OPEN_WRITE, error);
    g_autofree char *added = ecfs == NULL ? NULL : ecfs_key_add (ecfs, &code, error);
    return added != NULL;
}

static int change_keys (Actor *self, OpKind kind)
{
    g_autoptr (GError) error = NULL;
    actor_suspend (self);
    if (!change_key (self->fixture.directory, kind, &error))
        g_error ("the key cannot be changed: %s", error->message);
    actor_resume (self);
    return 0;
}

static char *go_on_with_key (const char *base)
{
    EcfsKeysState state = ECFS_KEYS_NONE;
    g_autoptr (GError) error = NULL;
    g_autofree char *directory = place (base, "archive");
    EcfsArchive *archive = ecfs_archive_open (directory, ECFS_ARCHIVE_READONLY, &error);
    bool good = archive != NULL && ecfs_keys_state (ecfs_archive_catalog (archive), &state, &error);
    if (archive != NULL)
        ecfs_archive_free (archive);
    if (good && state == ECFS_KEYS_ROTATING)
        good = ecfs_key_rotate (directory, &rotation, &error);
    if (good && state == ECFS_KEYS_BEGUN)
        good = ecfs_key_init (directory, &split, NULL, &error);
    return good ? NULL : g_strdup_printf ("the key: %s", error->message);
}

char *verbs_settle (const char *base)
{
    if (is_there (base, "archive.newer")) {
        discard (base, "archive");
        move (base, "archive.newer", "archive");
    }
    if (is_there (base, "archive.lost"))
        return verbs_recover (base, 0, 0);
    return is_there (base, "archive/key") ? go_on_with_key (base) : NULL;
}

/* Damage, and repairs behind a mount */

/* Of one endpoint. */
typedef struct Damaged {
    Actor *actor;
    bool gone;
} Damaged;

static bool parse_path (const char *path, EcfsUuid *ret_object, EcfsRepairRow *ret_row)
{
    g_auto (GStrv) parts = g_strsplit (path, "/", -1);
    guint n = g_strv_length (parts);
    g_autofree char *name = n < 3 ? NULL : g_strjoin ("/", parts[n - 3], parts[n - 2], parts[n - 1], NULL);
    return name != NULL && ecfs_stripe_name_parse (name, ret_object, &ret_row->index, &ret_row->instance);
}

static void flip_at (int fd, off_t offset)
{
    uint8_t byte;
    g_assert_cmpint (pread (fd, &byte, 1, offset), ==, 1);
    byte ^= 0x10;
    g_assert_cmpint (syscall (SYS_pwrite64, fd, &byte, 1, offset), ==, 1);
}

/* Bytes of each part of a stripe, and none that only pads. */
static void flip (const char *path)
{
    int fd = (int) syscall (SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    g_assert_cmpint (fd, >=, 0);
    flip_at (fd, lseek (fd, 0, SEEK_END) / 2);
    g_assert_cmpint (close (fd), ==, 0);
}

/* As if a reader had met it. */
static void damage_one (void *user, const char *path)
{
    const Damaged *self = user;
    EcfsUuid object;
    bool queued;
    EcfsRepairRow row = {.gone = self->gone, .reason = (char *) "damaged on purpose"};
    g_autoptr (GError) error = NULL;
    if (!parse_path (path, &object, &row))
        return;
    if (self->gone)
        g_assert_cmpint (syscall (SYS_unlinkat, AT_FDCWD, path, 0), ==, 0);
    else
        flip (path);
    if (!ecfs_catalog_repair_add (ecfs_archive_catalog (self->actor->fixture.archive), &object, &row, &queued, &error))
        g_error ("%s", error->message);
}

static int damage (Actor *self, const Op *op)
{
    g_autofree char *path = g_strdup_printf ("%s/e%u", self->fixture.base, (unsigned) op->a);
    Damaged damaged = {.actor = self, .gone = op->kind == OP_LOSE};
    list_below (path, damage_one, &damaged);
    return 0;
}

/* What happens to files of the journal. */
typedef struct Blot {
    GRand *random;
    enum { BLOT_REMOVE, BLOT_CUT, BLOT_FLIP, N_BLOTS } kind;
} Blot;

static void blot_one (void *user, const char *path)
{
    const Blot *self = user;
    int fd = (int) syscall (SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
    off_t size = fd < 0 ? 0 : lseek (fd, 0, SEEK_END);
    bool spared = g_rand_int_range (self->random, 0, 8) == 0;
    if (fd < 0) /* a newer one has taken its place */
        return;
    if (!spared && self->kind == BLOT_REMOVE)
        (void) syscall (SYS_unlinkat, AT_FDCWD, path, 0); /* it may be gone just now */
    else if (!spared && size > 0 && self->kind == BLOT_CUT)
        g_assert_cmpint (syscall (SYS_ftruncate, fd, (off_t) g_rand_int_range (self->random, 0, (gint32) size)), ==, 0);
    else if (!spared && size > 0)
        flip_at (fd, g_rand_int_range (self->random, 0, (gint32) size));
    g_assert_cmpint (close (fd), ==, 0);
}

void verbs_blot (const char *base, unsigned endpoint, unsigned seed)
{
    static const char *const directories[] = {"journal", "snapshots"};
    Blot blot = {.random = g_rand_new_with_seed (seed), .kind = seed / N_ENDPOINTS % N_BLOTS};
    for (size_t i = 0; i < G_N_ELEMENTS (directories); i++) {
        g_autofree char *path = g_strdup_printf ("%s/e%u/%s", base, endpoint, directories[i]);
        list_below (path, blot_one, &blot);
    }
    g_rand_free (blot.random);
}

/* What is queued and what is lacking. */
static uint64_t count_damages (Actor *self)
{
    EcfsTotals totals;
    EcfsCatalog *catalog = ecfs_archive_catalog (self->fixture.archive);
    g_autoptr (GArray) rows = ecfs_catalog_repairs (catalog, 0, NULL);
    g_assert_true (rows != NULL && ecfs_catalog_totals (catalog, &totals, NULL));
    return rows->len + totals.n_not_full;
}

static int heal (Actor *self)
{
    int64_t deadline_us = ecfs_now_us () + self->patience_us;
    ecfs_archive_repair_behind (self->fixture.archive);
    while (count_damages (self) > 0 && ecfs_now_us () < deadline_us)
        g_usleep (500);
    ecfs_archive_end_repairs (self->fixture.archive);
    ecfs_archive_pack_behind (self->fixture.archive);
    return count_damages (self) > 0 ? ETIMEDOUT : 0;
}

int verbs_do (Actor *self, const Op *op)
{
    g_autofree char *name = g_strdup_printf ("e%u", (unsigned) op->a);
    switch (op->kind) {
    case OP_EMPTY:
    case OP_TAKE_OUT:
    case OP_READONLY:
    case OP_ACTIVE:
        return endpoint_work (self, name, op->kind);
    case OP_REPLACE:
        return replace (self, op);
    case OP_PUT:
        return put_one (self, op);
    case OP_RECODE:
        return recode (self, op);
    case OP_COOL:
        return cool (self);
    case OP_PACK:
        return pack (self);
    case OP_FSCK:
        return check (self);
    case OP_RECOVER:
        return lose_directory (self);
    case OP_BACKUP:
        return back_up (self);
    case OP_STALE:
        return restore_old (self);
    case OP_HEAL:
        return heal (self);
    case OP_WAY:
    case OP_ROTATE:
    case OP_KEYED:
        return change_keys (self, op->kind);
    case OP_BLOT:
        verbs_blot (self->fixture.base, (unsigned) op->a, op->seed);
        return 0;
    default: /* damage, lose */
        return damage (self, op);
    }
}
