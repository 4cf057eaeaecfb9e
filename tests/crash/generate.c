#include "generate.h"

#include <string.h>

#define MAX_OPERATIONS 40
#define MAX_HANDLES    3
#define STEPS_EACH     9 /* of an operation, about */

typedef enum EntryKind { ENTRY_NONE, ENTRY_FILE, ENTRY_DIRECTORY, ENTRY_SYMLINK } EntryKind;

static const char *const names[] = {"old", "small", "also", "a",   "b",   "c",   "d",   "e",    "s",
                                    "d/x", "d/y",   "d/z",  "d/s", "e/x", "e/y", "e/z", "e/old"};
#define N_NAMES G_N_ELEMENTS (names)

typedef struct Entry {
    EntryKind kind;
    unsigned file; /* which of all that there ever were: names of one file have the same */
} Entry;

typedef struct Handle {
    unsigned name; /* when it was opened; N_NAMES: there is none */
    unsigned file;
    unsigned size; /* about */
} Handle;

typedef struct Maker {
    GRand *random;
    GString *text;
    Entry entries[N_NAMES];
    Handle handles[MAX_HANDLES];
    unsigned n_files;
    unsigned n_operations;
    unsigned hideable[N_ENDPOINTS];
    unsigned n_hideable;
    bool hidden;     /* the endpoint hideable[0] */
    bool doubled;    /* an endpoint took nothing for a while: one is enough */
    unsigned paused; /* that endpoint, while it is; N_ENDPOINTS: none */
    bool replaced, backed_up, recoded, cooled, damaged;
    bool is_troubled;
    unsigned tolerance;
    unsigned weak[N_ENDPOINTS]; /* endpoints that may lose what they have of the journal: as many as may be lost */
    unsigned n_weak;
    bool beside, is_recovering; /* elsewhere */
} Maker;

/* Choices */

static unsigned below (Maker *self, unsigned n)
{
    return (unsigned) g_rand_int_range (self->random, 0, (gint32) n);
}

static bool chance (Maker *self, unsigned percent)
{
    return below (self, 100) < percent;
}

static void say (Maker *self, const char *format, ...) G_GNUC_PRINTF (2, 3);

static void say (Maker *self, const char *format, ...)
{
    va_list arguments;
    va_start (arguments, format);
    g_string_append_vprintf (self->text, format, arguments);
    va_end (arguments);
    g_string_append (self->text, "; ");
    self->n_operations++;
}

static unsigned parent_of (unsigned name)
{
    if (strchr (names[name], '/') == NULL)
        return N_NAMES;
    for (unsigned i = 0; i < N_NAMES; i++)
        if (strncmp (names[i], names[name], 1) == 0 && strlen (names[i]) == 1)
            return i;
    g_assert_not_reached ();
}

static bool may_exist (const Maker *self, unsigned name)
{
    unsigned parent = parent_of (name);
    return parent == N_NAMES || self->entries[parent].kind == ENTRY_DIRECTORY;
}

static bool has_children (const Maker *self, unsigned directory)
{
    for (unsigned i = 0; i < N_NAMES; i++)
        if (parent_of (i) == directory && self->entries[i].kind != ENTRY_NONE)
            return true;
    return false;
}

/* Any name of this kind; N_NAMES: there is none. */
static unsigned pick (Maker *self, EntryKind kind)
{
    unsigned found[N_NAMES], n = 0;
    for (unsigned i = 0; i < N_NAMES; i++)
        if (self->entries[i].kind == kind && may_exist (self, i))
            found[n++] = i;
    return n == 0 ? N_NAMES : found[below (self, n)];
}

static bool is_open (const Maker *self, unsigned name, unsigned file)
{
    for (unsigned i = 0; i < MAX_HANDLES; i++)
        if (self->handles[i].name != N_NAMES && (self->handles[i].name == name || self->handles[i].file == file))
            return true;
    return false;
}

static Handle *free_handle (Maker *self)
{
    for (unsigned i = 0; i < MAX_HANDLES; i++)
        if (self->handles[i].name == N_NAMES)
            return &self->handles[i];
    return NULL;
}

/* Content */

static unsigned pick_size (Maker *self)
{
    static const unsigned sizes[] = {1,     100,   300,   5000,   16383,  16384, 16385,
                                     20000, 65536, 65537, 100000, 262144, 300000};
    return sizes[below (self, G_N_ELEMENTS (sizes))];
}

static void open_one (Maker *self)
{
    Handle *handle = free_handle (self);
    bool is_new = chance (self, 40);
    unsigned name = pick (self, is_new ? ENTRY_NONE : ENTRY_FILE);
    if (handle == NULL || name == N_NAMES || is_open (self, name, is_new ? UINT_MAX : self->entries[name].file))
        return;
    if (is_new)
        self->entries[name] = (Entry){.kind = ENTRY_FILE, .file = self->n_files++};
    say (self, "%s %s", is_new ? "create" : chance (self, 60) ? "truncate" : "open", names[name]);
    *handle = (Handle){.name = name, .file = self->entries[name].file};
}

static void write_to (Maker *self, Handle *handle)
{
    unsigned size = pick_size (self), offset = chance (self, 75) ? handle->size : below (self, 70000);
    say (self, "write %s %u %u", names[handle->name], offset, size);
    handle->size = MAX (handle->size, offset + size);
}

static void close_it (Maker *self, Handle *handle)
{
    say (self, "close %s", names[handle->name]);
    handle->name = N_NAMES;
}

static void use_handle (Maker *self)
{
    Handle *handle = &self->handles[below (self, MAX_HANDLES)];
    if (handle->name == N_NAMES)
        open_one (self);
    else if (chance (self, 45))
        write_to (self, handle);
    else if (chance (self, 60))
        close_it (self, handle);
    else if (chance (self, 25))
        say (self, "resize %s %u", names[handle->name], handle->size = below (self, handle->size + 1000));
    else
        say (self, "%s %s", chance (self, 50) ? "flush" : "fsync", names[handle->name]);
}

static void close_all (Maker *self)
{
    for (unsigned i = 0; i < MAX_HANDLES; i++)
        if (self->handles[i].name != N_NAMES)
            close_it (self, &self->handles[i]);
}

/* Names */

static void make_name (Maker *self)
{
    unsigned name = pick (self, ENTRY_NONE), from = pick (self, ENTRY_FILE);
    if (name == N_NAMES)
        return;
    if (strlen (names[name]) == 1 && (*names[name] == 'd' || *names[name] == 'e')) {
        say (self, "mkdir %s", names[name]);
        self->entries[name].kind = ENTRY_DIRECTORY;
    } else if (strchr (names[name], 's') == strrchr (names[name], '\0') - 1) {
        say (self, "symlink %s to%u", names[name], below (self, 100));
        self->entries[name].kind = ENTRY_SYMLINK;
    } else if (from != N_NAMES && !is_open (self, N_NAMES, self->entries[from].file)) {
        say (self, "link %s %s", names[from], names[name]);
        self->entries[name] = self->entries[from];
    }
}

static void remove_name (Maker *self)
{
    static const EntryKind kinds[] = {ENTRY_FILE, ENTRY_FILE, ENTRY_FILE, ENTRY_DIRECTORY, ENTRY_SYMLINK};
    unsigned name = pick (self, kinds[below (self, G_N_ELEMENTS (kinds))]);
    if (name == N_NAMES || has_children (self, name))
        return;
    say (self, "%s %s", self->entries[name].kind == ENTRY_DIRECTORY ? "rmdir" : "unlink", names[name]);
    self->entries[name].kind = ENTRY_NONE;
}

/* Of files alone, onto another or onto nothing. */
static void rename_one (Maker *self)
{
    unsigned from = pick (self, ENTRY_FILE), to = pick (self, chance (self, 50) ? ENTRY_FILE : ENTRY_NONE);
    if (from == N_NAMES || to == N_NAMES || self->entries[from].file == self->entries[to].file)
        return;
    say (self, "rename %s %s", names[from], names[to]);
    self->entries[to] = self->entries[from];
    self->entries[from].kind = ENTRY_NONE;
}

static void change_attribute (Maker *self)
{
    unsigned name = pick (self, ENTRY_FILE);
    if (name == N_NAMES)
        return;
    if (chance (self, 40))
        say (self, "mtime %s %u", names[name], below (self, 100000));
    else if (chance (self, 70))
        say (self, "setxattr %s note%u", names[name], below (self, 1000));
    else
        say (self, "removexattr %s", names[name]);
}

/* The archive as a whole */

static void wait_or_sync (Maker *self)
{
    if (chance (self, 70)) {
        say (self, "sync");
        return;
    }
    close_all (self); /* what is open is waited for */
    say (self, "wait");
}

static void reopen_or_check (Maker *self)
{
    close_all (self);
    say (self, "%s", chance (self, 60) ? "remount" : "fsck");
}

static void put_one (Maker *self)
{
    unsigned name = pick (self, ENTRY_FILE);
    close_all (self);
    if (name != N_NAMES)
        say (self, "put %s %u", names[name], pick_size (self));
}

static void recode_one (Maker *self)
{
    static const char *const codes[] = {"rs:4+2", "rs:3+2", "ldpc:3+3", "copies:2", "copies:3"};
    unsigned name = pick (self, ENTRY_FILE);
    if (name == N_NAMES || is_open (self, N_NAMES, self->entries[name].file))
        return;
    say (self, "recode %s %s", names[name], codes[below (self, G_N_ELEMENTS (codes))]);
    self->recoded = true;
}

static void cool_all (Maker *self)
{
    say (self, "cool");
    self->cooled = true;
}

static void pack_all (Maker *self)
{
    say (self, "pack");
}

static void hide_or_show (Maker *self)
{
    if (self->n_hideable == 0)
        return;
    say (self, "%s %u", self->hidden ? "show" : "hide", self->hideable[0]);
    self->hidden = !self->hidden;
}

/* Where nothing is in trouble: who gets what an endpoint had, or was to get, may have two stripes of an object then. */
static bool may_double (const Maker *self)
{
    return !self->doubled && !self->is_troubled && !self->damaged;
}

static void empty_one (Maker *self)
{
    if (!may_double (self))
        return;
    unsigned endpoint = below (self, N_ENDPOINTS);
    close_all (self);
    say (self, "empty %u", endpoint);
    if (chance (self, 50))
        say (self, "remove %u", endpoint);
    self->doubled = true;
}

static void pause_or_resume (Maker *self)
{
    if (self->paused < N_ENDPOINTS) {
        say (self, "active %u", self->paused);
        self->paused = N_ENDPOINTS;
    } else if (may_double (self)) {
        self->paused = below (self, N_ENDPOINTS);
        say (self, "readonly %u", self->paused);
        self->doubled = true;
    }
}

/* Also one that is in trouble, by one that is not. */
static void replace_one (Maker *self)
{
    if (self->replaced || self->doubled)
        return;
    close_all (self);
    say (self, "replace %u %u", below (self, N_ENDPOINTS), N_ENDPOINTS);
    self->replaced = true;
}

static void lose_directory (Maker *self)
{
    if (self->is_troubled)
        return;
    close_all (self);
    say (self, "recover");
}

static void use_backup (Maker *self)
{
    close_all (self);
    say (self, "%s", self->backed_up ? "stale" : "backup");
    self->backed_up = true;
}

/* As much as every file survives. */
static void damage_some (Maker *self)
{
    if (self->damaged) {
        say (self, "heal");
        return;
    }
    if (!may_double (self) || self->replaced)
        return;
    unsigned most = self->recoded  ? 1
                    : self->cooled ? MIN (self->tolerance, 2)
                                   : self->tolerance,
             first = below (self, N_ENDPOINTS);
    for (unsigned i = 0, n = 1 + below (self, most); i < n; i++)
        say (self, "%s %u", chance (self, 60) ? "damage" : "lose", (first + i) % N_ENDPOINTS);
    if (chance (self, 60))
        say (self, "heal");
    self->damaged = true;
}

static void blot_some (Maker *self)
{
    for (unsigned i = 0; i < self->n_weak; i++)
        if (chance (self, 70))
            say (self, "blot %u", self->weak[i]);
}

/* Other machines */

static void spoil_some (Maker *self)
{
    static const int errors[] = {EIO, ENOSPC, ENOTCONN, 0};
    int error = errors[below (self, G_N_ELEMENTS (errors))];
    unsigned share = chance (self, 70) ? 20 : 60;
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        if (chance (self, share))
            say (self, "spoil %u %d", i, error);
}

static void wait_now (Maker *self)
{
    close_all (self);
    say (self, "wait");
}

static void begin_elsewhere (Maker *self)
{
    static const char *const phases[] = {"nowhere", "watching", "snapshot", "journal", "listing", "stripes",
                                         "strays",  "storing",  "markers",  "markers", "markers"};
    if (chance (self, 20))
        spoil_some (self);
    if (self->n_weak > 0 && chance (self, 30))
        say (self, "without %u", self->weak[below (self, self->n_weak)]);
    const char *phase = phases[below (self, G_N_ELEMENTS (phases))];
    unsigned nth = chance (self, 70) ? 1 : 1 + below (self, 3), at = chance (self, 25) ? 1 + below (self, 120) : 0;
    say (self, "elsewhere %s %u %u", phase, nth, at);
    self->is_recovering = true;
    if (chance (self, 50))
        return;
    make_name (self); /* of what the recovery may have read already */
    rename_one (self);
    change_attribute (self);
    wait_now (self);
}

static void work_elsewhere (Maker *self)
{
    unsigned what = below (self, 10);
    if (!self->is_recovering) {
        begin_elsewhere (self);
        return;
    }
    if (what == 0)
        say (self, "freeze %u", 100 + below (self, 1500));
    else if (what == 1)
        say (self, "resume");
    else if (what == 2)
        spoil_some (self);
    else if (what == 3)
        say (self, "cancel");
    else
        say (self, "%s", what < 7 ? "kill" : "outcome");
    self->is_recovering = what < 3;
}

/* The machine is lost in the middle of a file of several objects. */
static void stop_halfway (Maker *self)
{
    Handle *handle = free_handle (self);
    unsigned name = pick (self, chance (self, 50) ? ENTRY_NONE : ENTRY_FILE);
    bool is_new = name != N_NAMES && self->entries[name].kind == ENTRY_NONE;
    if (handle == NULL || name == N_NAMES || is_open (self, name, is_new ? UINT_MAX : self->entries[name].file))
        return;
    if (is_new)
        self->entries[name] = (Entry){.kind = ENTRY_FILE, .file = self->n_files++};
    say (self, "%s %s", is_new ? "create" : "truncate", names[name]);
    *handle = (Handle){.name = name, .file = self->entries[name].file, .size = 300000};
    say (self, "write %s 0 300000", names[name]);
    if (chance (self, 30))
        say (self, "fsync %s", names[name]);
    if (!self->is_recovering)
        say (self, "elsewhere nowhere 1 0");
    say (self, "outcome");
    self->is_recovering = false;
}

static void work_beside (Maker *self)
{
    static void (*const kinds[]) (Maker *) = {
        work_elsewhere, work_elsewhere, work_elsewhere, work_elsewhere, work_elsewhere, wait_now,
        wait_now,       wait_now,       wait_or_sync,   put_one,        recode_one,     reopen_or_check,
        hide_or_show,   blot_some,      stop_halfway,   pack_all,       cool_all};
    kinds[below (self, G_N_ELEMENTS (kinds))](self);
}

static void work_on_all (Maker *self)
{
    static void (*const kinds[]) (Maker *) = {
        wait_or_sync, wait_or_sync, reopen_or_check, put_one,         recode_one,     hide_or_show,
        hide_or_show, empty_one,    replace_one,     pause_or_resume, lose_directory, use_backup,
        use_backup,   damage_some,  blot_some,       pack_all,        cool_all};
    kinds[below (self, G_N_ELEMENTS (kinds))](self);
}

static void read_one (Maker *self)
{
    unsigned name = pick (self, ENTRY_FILE);
    if (name != N_NAMES)
        say (self, "read %s", names[name]);
}

static void add_operation (Maker *self)
{
    static void (*const kinds[]) (Maker *) = {use_handle, use_handle,  use_handle,       use_handle,
                                              use_handle, use_handle,  change_attribute, make_name,
                                              rename_one, remove_name, read_one,         work_on_all};
    unsigned n_kinds = G_N_ELEMENTS (kinds) - self->beside; /* which has its own */
    if (self->beside && chance (self, 25))
        work_beside (self);
    else
        kinds[below (self, n_kinds)](self);
}

static void set_up_entries (Maker *self)
{
    static const struct {
        const char *name;
        EntryKind kind;
        unsigned file;
    } there[] = {
        {"old", ENTRY_FILE, 0}, {"small", ENTRY_FILE, 1}, {"d", ENTRY_DIRECTORY, 2},
        {"d/x", ENTRY_FILE, 3}, {"also", ENTRY_FILE, 3},
    };
    for (unsigned i = 0; i < N_NAMES; i++)
        for (size_t j = 0; j < G_N_ELEMENTS (there); j++)
            if (strcmp (names[i], there[j].name) == 0)
                self->entries[i] = (Entry){there[j].kind, there[j].file};
    self->n_files = G_N_ELEMENTS (there);
    for (unsigned i = 0; i < MAX_HANDLES; i++)
        self->handles[i].name = N_NAMES;
}

/* Trouble */

static char *make_rules (Maker *self, bool lies, unsigned seed)
{
    static const char *const operations[] = {"read", "write", "write",   "remove", "size",
                                             "list", "mark",  "examine", "space",  "any"};
    static const char *const lying[] = {"truncate", "flip", "stale"};
    GString *rules = g_string_new (NULL);
    g_string_append_printf (rules, "seed %u\n", seed);
    for (unsigned i = 1 + below (self, 3); i > 0; i--) {
        g_string_append_printf (rules, "%s ", operations[below (self, G_N_ELEMENTS (operations))]);
        switch (below (self, 3)) {
        case 0:
            g_string_append_printf (rules, "%u%s ", 1 + below (self, 6), chance (self, 30) ? "+" : "");
            break;
        case 1:
            g_string_append_printf (rules, "%u%% ", 1 + below (self, 40));
            break;
        default:
            g_string_append_printf (rules, "%u ", 1 + below (self, 30));
        }
        if (lies && chance (self, 60))
            g_string_append_printf (rules, "%s\n", lying[below (self, G_N_ELEMENTS (lying))]);
        else if (chance (self, 5))
            g_string_append (rules, "hang\n");
        else if (chance (self, 15))
            g_string_append_printf (rules, "delay %u\n", 1 + below (self, 20));
        else
            g_string_append_printf (rules, "fail %d\n", chance (self, 70) ? EIO : ENOSPC);
    }
    return g_string_free (rules, FALSE);
}

static void shuffle (Maker *self, unsigned *positions)
{
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        positions[i] = i;
    for (unsigned i = N_ENDPOINTS - 1; i > 0; i--) {
        unsigned j = below (self, i + 1), kept = positions[i];
        positions[i] = positions[j];
        positions[j] = kept;
    }
}

/* At most @tolerance endpoints lie, lose or hide; now and then more of them fail, which loses nothing either. */
static void make_trouble (Maker *self, Round *round)
{
    unsigned tolerance = self->tolerance;
    unsigned positions[N_ENDPOINTS];
    shuffle (self, positions);
    bool too_many = chance (self, 10);
    unsigned n_flawed = too_many ? tolerance + 1 + below (self, N_ENDPOINTS - tolerance) : below (self, tolerance + 1);
    for (unsigned i = 0; i < n_flawed; i++)
        round->flaws[positions[i]] = make_rules (self, !too_many, round->seed + i);
    round->n_troubled = n_flawed;
    for (unsigned i = 0; i < tolerance && !too_many; i++)
        self->weak[self->n_weak++] = positions[i];
    if (n_flawed < tolerance && chance (self, 50)) {
        self->hideable[self->n_hideable++] = positions[n_flawed];
        round->n_troubled++;
    }
    self->is_troubled = round->n_troubled > 0;
}

/* Rounds */

static void make_crash (Maker *self, Round *round)
{
    static const CrashLoss losses[] = {CRASH_LOSES_NOTHING, CRASH_LOSES_NOTHING, CRASH_LOSES_ALL, CRASH_LOSES_SOME};
    round->moment = (CrashMoment) below (self, 3);
    round->loss = losses[below (self, G_N_ELEMENTS (losses))];
    if (round->n_troubled > 0 && chance (self, 35))
        return; /* the trouble is enough */
    round->at = 1 + below (self, self->n_operations * STEPS_EACH);
    if (chance (self, 20))
        round->recovery_at = 1 + below (self, 25);
}

Round *round_new (unsigned seed, const unsigned *tolerances, unsigned n_codes)
{
    Round *round = g_new0 (Round, 1);
    Maker maker = {.random = g_rand_new_with_seed (seed), .text = g_string_new (NULL)};
    round->seed = seed;
    round->code = below (&maker, n_codes);
    round->async = chance (&maker, 30);
    round->logless = seed / 4 % 3 == 0;
    round->beside = maker.beside = seed % 2 == 1;
    round->small_objects = seed / 2 % 2 == 0;
    round->recover = chance (&maker, round->beside ? 50 : 25);
    round->n_zones = chance (&maker, 30) ? 2 + below (&maker, 3) : 0;
    round->keyed = round->n_zones == 0 && seed % 3 != 0;
    maker.paused = N_ENDPOINTS;
    maker.tolerance = tolerances[round->code];
    set_up_entries (&maker);
    make_trouble (&maker, round);
    for (unsigned n = 4 + below (&maker, MAX_OPERATIONS), i = 0; i < n; i++)
        add_operation (&maker);
    if (chance (&maker, 70))
        close_all (&maker);
    g_string_append (maker.text, "end");
    make_crash (&maker, round);
    round->script = g_string_free (maker.text, FALSE);
    g_rand_free (maker.random);
    return round;
}

void round_free (Round *round)
{
    if (round == NULL)
        return;
    for (unsigned i = 0; i < N_ENDPOINTS; i++)
        g_free (round->flaws[i]);
    g_free (round->script);
    g_free (round);
}
