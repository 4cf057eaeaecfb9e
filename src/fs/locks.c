/*
 * Locks of flock(2) and fcntl(2) where other mounts lock, too. The kernel asks for each of them, and one thread does it
 * all, in the order in which it is asked: it knows what this mount's owners hold, and has the catalog grant what they
 * want (locks.h). Nobody else waits for it, and it waits for no endpoint.
 *
 * What is not free is waited for by asking again, and until then the request is in a list; an interrupt takes it out.
 * What is given back is free here at once, and the catalog is told until it knows. What an owner holds may differ from
 * what the catalog has after an error, or after the database came back: then it is `unsure`, and is set again. If that
 * conflicts with what somebody else holds by then, it is lost, and who has the file open is told by EIO.
 *
 * An owner is a process (fcntl), or an open file (flock, and fcntl's F_OFD_SETLK). Its locks end when the kernel says
 * that it has closed the file, and at the latest with the open file by which it took the last of them.
 *
 * Locks order content: what was written is stored before an exclusive lock is given back, and what is read under a lock
 * is no older than that.
 */
#include "catalog/locks.h"
#include "archive/common.h"
#include "fs/fs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>

#define PAUSE_MIN_US (G_USEC_PER_SEC / 20) /* between tries of who waits */
#define PAUSE_MAX_US (G_USEC_PER_SEC / 5)
#define GRACE_US     (G_USEC_PER_SEC / 10) /* a file that was closed here may keep its lock so long */
#define LOOK_US      G_USEC_PER_SEC        /* while something is held or waited for */
#define IDLE_US      (60 * G_USEC_PER_SEC)
#define AWAY_US      (30 * G_USEC_PER_SEC) /* a lock waits so long for a database that is away */
#define N_RANGES_MAX 4096                  /* of an owner in a file */
#define TELLERS      2

typedef enum RequestKind {
    REQUEST_SET,
    REQUEST_TEST,
    REQUEST_CLOSE,   /* an owner of fcntl's closes a descriptor */
    REQUEST_RELEASE, /* an open file is none any more */
} RequestKind;

/* What the kernel asks, until it is answered. */
typedef struct Request {
    fuse_req_t req;
    RequestKind kind;
    EcfsLockOwner key;
    EcfsHandle *handle;
    EcfsLockRange range;
    EcfsLockType type;
    pid_t pid;
    bool waits;       /* until it is free */
    bool is_stored;   /* what it is to store before was, or could not be */
    int code;         /* an errno that came of that */
    bool is_prepared; /* what was emptied is stored */
    bool has_grace;   /* it was tried a second time */
    bool is_heard;    /* interrupts are */
    int64_t next_us, pause_us;
    int64_t away_until_us; /* 0: the database was not away */
    atomic_bool interrupted;
    struct EcfsFsLocks *locks;
} Request;

/* Who holds something, or may, of a file. */
typedef struct Owner {
    EcfsLockOwner key;
    GArray *held;       /* lock_ranges.h */
    EcfsHandle *handle; /* by which it locked last */
    pid_t pid;
    bool unsure; /* the catalog may have something else */
} Owner;

struct EcfsFsLocks {
    EcfsFs *fs;
    EcfsWorkers *tellers; /* of who got a lock, as this may wait for reads */
    pthread_t thread;
    atomic_uint n_busy; /* owners, and requests that are not answered */
    EcfsMutex lock;
    EcfsCond wake;
    GQueue asked; /* of Request; guarded by lock, as the next */
    bool nudged;  /* somebody was interrupted */
    bool opened;  /* a file for writing */
    bool stopping, ended;
    /* The thread's. */
    GHashTable *owners; /* &key → Owner */
    GQueue waiting;     /* of Request */
    unsigned n_connections;
    int64_t looked_us;
    int64_t resting_us; /* when files that rest are to be left; INT64_MAX: there are none */
    bool is_lost;       /* this mount was taken for dead */
};

static guint hash_key (gconstpointer data)
{
    const EcfsLockOwner *key = data;
    return g_int64_hash (&key->ino) * 31 + g_int64_hash (&key->owner) + (guint) key->kind;
}

static gboolean is_same_key (gconstpointer a, gconstpointer b)
{
    const EcfsLockOwner *one = a, *other = b;
    return one->ino == other->ino && one->owner == other->owner && one->kind == other->kind;
}

static void free_owner (gpointer data)
{
    Owner *owner = data;
    g_array_unref (owner->held);
    g_free (owner);
}

/* Answers */

static void end_request (Request *request)
{
    atomic_fetch_sub (&request->locks->n_busy, 1);
    g_free (request);
}

static void answer (Request *request, int code)
{
    if (request->is_heard)
        fuse_req_interrupt_func (request->req, NULL, NULL); /* returns when none is being handled any more */
    fuse_reply_err (request->req, code);
    end_request (request);
}

static void ask (EcfsFsLocks *self, Request *request)
{
    ecfs_mutex_lock (&self->lock);
    bool ended = self->ended;
    if (!ended)
        g_queue_push_tail (&self->asked, request);
    ecfs_cond_signal (&self->wake);
    ecfs_mutex_unlock (&self->lock);
    if (ended)
        answer (request, request->code);
}

static void tell_granted (void *data)
{
    Request *request = data;
    ecfs_fs_look_again (request->locks->fs, request->key.ino);
    answer (request, request->code);
}

static void tell_forget (void *data)
{
    Request *request = data; /* that the kernel has not made */
    (void) fuse_lowlevel_notify_inval_inode (request->locks->fs->session, request->key.ino, 0, 0); /* it asks, then */
    end_request (request);
}

bool ecfs_fs_locks_held_elsewhere (EcfsFsLocks *self, uint64_t ino)
{
    bool there = false;
    EcfsLockRange found;
    const EcfsLockRange all = {.last = ECFS_LOCK_END, .exclusive = true};
    for (EcfsLockKind kind = ECFS_LOCK_FLOCK; self != NULL && !there && kind <= ECFS_LOCK_FCNTL; kind++) {
        const EcfsLockOwner key = {.ino = ino, .kind = kind};
        (void) ecfs_catalog_lock_find (self->fs->catalog, &key, &all, &there, &found, NULL); /* then it is not */
    }
    return there;
}

void ecfs_fs_locks_opened (EcfsFsLocks *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->opened = true;
    ecfs_cond_signal (&self->wake);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_fs_locks_forget (EcfsFsLocks *self, uint64_t ino)
{
    if (self == NULL)
        return;
    Request *tell = g_new0 (Request, 1);
    tell->locks = self;
    tell->key.ino = ino;
    atomic_fetch_add (&self->n_busy, 1);
    ecfs_workers_push (self->tellers, tell_forget, tell);
}

/* Owners */

static Owner *find_owner (const EcfsFsLocks *self, const EcfsLockOwner *key)
{
    return g_hash_table_lookup (self->owners, key);
}

static Owner *make_owner (EcfsFsLocks *self, const Request *request)
{
    Owner *owner = find_owner (self, &request->key);
    if (owner == NULL) {
        owner = g_new0 (Owner, 1);
        owner->key = request->key;
        owner->held = ecfs_lock_ranges_new ();
        owner->handle = request->handle;
        g_hash_table_insert (self->owners, &owner->key, owner);
        atomic_fetch_add (&self->n_busy, 1);
    }
    return owner;
}

/* As they are now; they are lent. */
static GPtrArray *all_owners (const EcfsFsLocks *self)
{
    GHashTableIter iter;
    gpointer value;
    GPtrArray *owners = g_ptr_array_new ();
    g_hash_table_iter_init (&iter, self->owners);
    while (g_hash_table_iter_next (&iter, NULL, &value))
        g_ptr_array_add (owners, value);
    return owners;
}

static bool is_over (const Owner *owner)
{
    return owner->held->len == 0 && !owner->unsure;
}

static void drop_if_over (EcfsFsLocks *self, Owner *owner)
{
    if (!is_over (owner))
        return;
    g_hash_table_remove (self->owners, &owner->key);
    atomic_fetch_sub (&self->n_busy, 1);
}

static void hold (Owner *owner, GArray *ranges)
{
    g_array_unref (owner->held);
    owner->held = ranges;
}

/* What it holds is another's by now. Who has the file open is told at its next use, for which the kernel is to ask. */
static void lose (EcfsFsLocks *self, Owner *owner)
{
    hold (owner, ecfs_lock_ranges_new ());
    if (owner->handle != NULL)
        atomic_store (&owner->handle->lost_lock, true);
    ecfs_fs_locks_forget (self, owner->key.ino);
}

/* Another of this mount that keeps @key from locking; NULL: none does. */
static const Owner *find_in_the_way (const EcfsFsLocks *self, const EcfsLockOwner *key, const EcfsLockRange *wanted,
                                     const EcfsLockRange **ret_range)
{
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, self->owners);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        const Owner *owner = value;
        if (owner->key.ino != key->ino || owner->key.kind != key->kind || owner->key.owner == key->owner)
            continue;
        *ret_range = ecfs_lock_ranges_find (owner->held, wanted->first, wanted->last, wanted->exclusive);
        if (*ret_range != NULL)
            return owner;
    }
    return NULL;
}

/* The catalog */

/* Who waits may have it now. */
static void hurry_waiting (EcfsFsLocks *self, uint64_t ino)
{
    for (GList *link = self->waiting.head; link != NULL; link = link->next) {
        Request *request = link->data;
        if (request->key.ino == ino)
            request->next_us = 0;
    }
}

/* 1: it holds these, and the catalog knows; 0: they are not free; -1: @error, and it is unsure. */
static int publish (EcfsFsLocks *self, Owner *owner, const GArray *ranges, GError **error)
{
    bool granted = false;
    if (!ecfs_catalog_lock_set (self->fs->catalog, &owner->key, ranges, &granted, error)) {
        owner->unsure = true;
        return -1;
    }
    owner->unsure = owner->unsure && !granted;
    return granted ? 1 : 0;
}

/* From now on it holds @ranges, which is taken, and which are no more than what it did. */
static void lower (EcfsFsLocks *self, Owner *owner, GArray *ranges)
{
    g_autoptr (GError) why = NULL;
    bool changes = owner->unsure || !ecfs_lock_ranges_equal (owner->held, ranges);
    hold (owner, ranges);
    int done = changes && !self->is_lost ? publish (self, owner, owner->held, &why) : 1;
    if (done < 0)
        g_info ("%s; the lock is given back when it can be", why->message);
    else if (done == 0)
        lose (self, owner);
    hurry_waiting (self, owner->key.ino);
}

/* Waiting */

static void interrupted (fuse_req_t req, void *user)
{
    Request *request = user;
    EcfsFsLocks *self = request->locks;
    (void) req;
    atomic_store (&request->interrupted, true);
    ecfs_mutex_lock (&self->lock);
    self->nudged = true;
    ecfs_cond_signal (&self->wake);
    ecfs_mutex_unlock (&self->lock);
}

static void wait_on (EcfsFsLocks *self, Request *request, int64_t pause_us)
{
    request->next_us = ecfs_now_us () + pause_us;
    g_queue_push_tail (&self->waiting, request);
    if (request->is_heard)
        return;
    request->is_heard = true;
    fuse_req_interrupt_func (request->req, interrupted, request);
}

static void blocked (EcfsFsLocks *self, Request *request, bool is_here)
{
    Owner *owner = find_owner (self, &request->key);
    if (owner != NULL && request->key.kind == ECFS_LOCK_FLOCK) { /* as flock(2) has it: two that share do not block */
        lower (self, owner, ecfs_lock_ranges_new ());
        drop_if_over (self, owner);
    }
    ecfs_fs_leave (self->fs, request->handle); /* who has the lock may want to write */
    if (request->waits) {
        request->pause_us = CLAMP (request->pause_us * 2, PAUSE_MIN_US, PAUSE_MAX_US);
        wait_on (self, request, request->pause_us);
    } else if (is_here && request->key.kind == ECFS_LOCK_FLOCK && !request->has_grace) {
        request->has_grace = true;
        wait_on (self, request, GRACE_US);
    } else {
        answer (request, EAGAIN);
    }
}

/* It is tried again while the database may come back. */
static void failed (EcfsFsLocks *self, Request *request, const GError *error)
{
    int64_t now_us = ecfs_now_us ();
    bool is_away = ecfs_catalog_away_us (self->fs->catalog) != 0;
    if (request->away_until_us == 0)
        request->away_until_us = now_us + AWAY_US;
    if (is_away && now_us < request->away_until_us && ecfs_catalog_behind (self->fs->catalog) == NULL)
        wait_on (self, request, PAUSE_MAX_US);
    else
        answer (request, ecfs_fs_log_error (self->fs, request->key.ino, "locking it", error));
}

/* Requests */

/* "exec 9>FILE; flock 9" empties a file on each machine, and is to keep none from it. */
static void prepared (void *user, int code)
{
    Request *request = user;
    (void) code; /* who closes it is told */
    request->is_prepared = true;
    ask (request->locks, request);
}

static bool prepares (EcfsFsLocks *self, Request *request)
{
    if (request->type == ECFS_LOCK_NONE || !ecfs_fs_is_empty (self->fs, request->key.ino))
        return false;
    if (!request->is_prepared && ecfs_fs_store (request->req, request->key.ino, "storing it", prepared, request))
        return true;
    ecfs_fs_leave (self->fs, request->handle);
    return false;
}

/* What is to be stored first was. */
static void stored (void *user, int code)
{
    Request *request = user;
    request->is_stored = true;
    request->code = code;
    ask (request->locks, request);
}

/* Whether the answer comes when what was written under an exclusive lock is stored. */
static bool stores_first (EcfsFsLocks *self, Request *request, const Owner *owner, const GArray *after)
{
    return !request->is_stored && ecfs_lock_ranges_loses (owner->held, after) &&
           ecfs_fs_store (request->req, request->key.ino, "unlocking it", stored, request);
}

static void grant (EcfsFsLocks *self, Request *request, Owner *owner, GArray *raised)
{
    g_autoptr (GArray) after = ecfs_lock_ranges_copy (raised);
    ecfs_lock_ranges_set (after, request->range.first, request->range.last, request->type);
    hold (owner, raised);
    owner->handle = request->handle;
    owner->pid = request->pid;
    if (!ecfs_lock_ranges_equal (after, raised))
        lower (self, owner, g_steal_pointer (&after));
    ecfs_workers_push (self->tellers, tell_granted, request);
}

static void lock_it (EcfsFsLocks *self, Request *request, Owner *owner)
{
    const EcfsLockRange *range;
    g_autoptr (GError) error = NULL;
    g_autoptr (GArray) raised = ecfs_lock_ranges_copy (owner->held);
    ecfs_lock_ranges_raise (raised, request->range.first, request->range.last, request->type);
    if (raised->len > N_RANGES_MAX) {
        answer (request, ENOLCK);
    } else if (find_in_the_way (self, &request->key, &request->range, &range) != NULL) {
        blocked (self, request, true);
    } else {
        bool is_held = !owner->unsure && ecfs_lock_ranges_equal (owner->held, raised);
        int granted = is_held ? 1 : publish (self, owner, raised, &error);
        if (granted < 0)
            failed (self, request, error);
        else if (granted == 0)
            blocked (self, request, false);
        else
            grant (self, request, owner, g_steal_pointer (&raised));
    }
}

static void set (EcfsFsLocks *self, Request *request)
{
    Owner *owner = self->is_lost                     ? NULL
                   : request->type == ECFS_LOCK_NONE ? find_owner (self, &request->key)
                                                     : make_owner (self, request);
    if (owner == NULL) { /* there is nothing to give back, or it is lost */
        answer (request, self->is_lost ? EIO : 0);
        return;
    }
    const EcfsLockOwner key = owner->key;
    g_autoptr (GArray) after = ecfs_lock_ranges_copy (owner->held);
    ecfs_lock_ranges_set (after, request->range.first, request->range.last, request->type);
    if (prepares (self, request) || stores_first (self, request, owner, after))
        return;
    if (request->type != ECFS_LOCK_NONE) {
        lock_it (self, request, owner);
    } else {
        if (after->len == 0)
            ecfs_fs_leave (self->fs, request->handle);
        lower (self, owner, g_steal_pointer (&after));
        answer (request, request->code);
    }
    owner = find_owner (self, &key);
    if (owner != NULL)
        drop_if_over (self, owner);
}

static void test (EcfsFsLocks *self, Request *request)
{
    bool there = false;
    EcfsLockRange elsewhere;
    const EcfsLockRange *range;
    g_autoptr (GError) error = NULL;
    const Owner *owner = find_in_the_way (self, &request->key, &request->range, &range);
    if (owner == NULL && (self->is_lost || !ecfs_catalog_lock_find (self->fs->catalog, &request->key, &request->range,
                                                                    &there, &elsewhere, &error))) {
        answer (request,
                self->is_lost ? EIO : ecfs_fs_log_error (self->fs, request->key.ino, "looking for locks", error));
        return;
    }
    if (owner == NULL)
        range = &elsewhere;
    struct flock lock = {.l_type = F_UNLCK};
    if (owner != NULL || there)
        lock = (struct flock){.l_type = range->exclusive ? F_WRLCK : F_RDLCK,
                              .l_whence = SEEK_SET,
                              .l_start = range->first,
                              .l_len = range->last == ECFS_LOCK_END ? 0 : range->last - range->first + 1,
                              .l_pid = owner == NULL ? 0 : owner->pid}; /* another machine's says nothing here */
    fuse_reply_lock (request->req, &lock);
    end_request (request);
}

static void close_owner (EcfsFsLocks *self, const EcfsLockOwner *key)
{
    Owner *owner = find_owner (self, key);
    if (owner == NULL)
        return;
    lower (self, owner, ecfs_lock_ranges_new ());
    drop_if_over (self, owner);
}

static void release (EcfsFsLocks *self, const EcfsHandle *handle)
{
    g_autoptr (GPtrArray) owners = all_owners (self);
    for (guint i = 0; i < owners->len; i++) {
        Owner *owner = g_ptr_array_index (owners, i);
        if (owner->handle != handle)
            continue;
        owner->handle = NULL;
        lower (self, owner, ecfs_lock_ranges_new ());
        drop_if_over (self, owner);
    }
}

static void handle_request (EcfsFsLocks *self, Request *request)
{
    switch (request->kind) {
    case REQUEST_SET:
        set (self, request);
        break;
    case REQUEST_TEST:
        test (self, request);
        break;
    case REQUEST_CLOSE:
        close_owner (self, &request->key);
        answer (request, request->code);
        break;
    case REQUEST_RELEASE:
        release (self, request->handle);
        ecfs_fs_handle_free (self->fs, request->handle);
        answer (request, 0);
        break;
    }
}

/* The thread */

/* Those whose time has come, once each. */
static void try_waiting (EcfsFsLocks *self)
{
    int64_t now_us = ecfs_now_us ();
    for (guint n = self->waiting.length; n > 0; n--) {
        Request *request = g_queue_pop_head (&self->waiting);
        if (atomic_load (&request->interrupted))
            answer (request, EINTR);
        else if (now_us < request->next_us)
            g_queue_push_tail (&self->waiting, request); /* all are looked at, so they stay in order */
        else
            handle_request (self, request);
    }
}

/* This mount was taken for dead: all that was locked is free for others. */
static void lose_all (EcfsFsLocks *self)
{
    GHashTableIter iter;
    gpointer value;
    self->is_lost = true;
    g_warning ("%s: this mount was taken for dead, and has lost its locks: who had them is told by EIO, until the file "
               "is closed",
               ecfs_archive_directory (self->fs->archive));
    g_hash_table_iter_init (&iter, self->owners);
    while (g_hash_table_iter_next (&iter, NULL, &value)) {
        lose (self, value);
        ((Owner *) value)->unsure = false;
    }
    atomic_fetch_sub (&self->n_busy, g_hash_table_size (self->owners));
    g_hash_table_remove_all (self->owners);
    for (GList *link = self->waiting.head; link != NULL; link = link->next)
        ((Request *) link->data)->next_us = 0;
}

/* Has the catalog know what it may not. */
static void make_sure (EcfsFsLocks *self)
{
    g_autoptr (GPtrArray) owners = all_owners (self);
    for (guint i = 0; i < owners->len && ecfs_catalog_away_us (self->fs->catalog) == 0; i++) {
        Owner *owner = g_ptr_array_index (owners, i);
        g_autoptr (GError) why = NULL;
        int set = owner->unsure ? publish (self, owner, owner->held, &why) : 1;
        if (set < 0)
            g_info ("%s", why->message); /* tried again */
        if (set == 0) {
            g_warning ("inode %" PRIu64
                       ": the database lacked a lock of this mount, and another has it now: who had it "
                       "is told by EIO, until the file is closed",
                       owner->key.ino);
            lose (self, owner);
        }
        drop_if_over (self, owner);
    }
}

static void look (EcfsFsLocks *self)
{
    bool holds = g_hash_table_size (self->owners) > 0;
    if (!self->is_lost && ecfs_catalog_behind (self->fs->catalog) != NULL)
        lose_all (self);
    try_waiting (self);
    if (ecfs_now_us () >= self->resting_us)
        ecfs_fs_leave_resting (self->fs, &self->resting_us);
    if (!holds || ecfs_now_us () - self->looked_us < LOOK_US)
        return;
    self->looked_us = ecfs_now_us ();
    unsigned n_connections = ecfs_catalog_lock_connections (self->fs->catalog);
    GHashTableIter iter;
    gpointer value;
    g_hash_table_iter_init (&iter, self->owners);
    while (n_connections != self->n_connections && g_hash_table_iter_next (&iter, NULL, &value))
        ((Owner *) value)->unsure = true;
    self->n_connections = n_connections;
    make_sure (self);
}

static int64_t when_due (const EcfsFsLocks *self)
{
    int64_t due_us = ecfs_now_us () + (g_hash_table_size (self->owners) > 0 ? LOOK_US : IDLE_US);
    due_us = MIN (due_us, self->resting_us);
    for (const GList *link = self->waiting.head; link != NULL; link = link->next)
        due_us = MIN (due_us, ((const Request *) link->data)->next_us);
    return due_us;
}

/* The next that is asked; NULL: it is time to look, or all has an end. */
static Request *take (EcfsFsLocks *self, bool *ret_ended)
{
    int64_t due_us = when_due (self);
    ecfs_mutex_lock (&self->lock);
    while (self->asked.length == 0 && !self->stopping && !self->nudged && !self->opened && ecfs_now_us () < due_us)
        (void) ecfs_cond_wait_until (&self->wake, &self->lock, due_us); /* the loop looks */
    if (self->opened)
        self->resting_us = MIN (self->resting_us, ecfs_now_us () + LOOK_US);
    self->nudged = self->opened = false;
    Request *request = g_queue_pop_head (&self->asked);
    *ret_ended = request == NULL && self->stopping;
    self->ended = self->ended || *ret_ended;
    ecfs_mutex_unlock (&self->lock);
    return request;
}

static void give_all_back (EcfsFsLocks *self)
{
    Request *request;
    g_autoptr (GPtrArray) owners = all_owners (self);
    while ((request = g_queue_pop_head (&self->waiting)) != NULL)
        answer (request, EINTR);
    for (guint i = 0; i < owners->len; i++)
        lower (self, g_ptr_array_index (owners, i), ecfs_lock_ranges_new ()); /* or the end of the session does it */
}

static void *serve (void *data)
{
    EcfsFsLocks *self = data;
    bool ended = false;
    ecfs_catalog_hurry (true);
    while (!ended) {
        Request *request = take (self, &ended);
        if (request != NULL)
            handle_request (self, request);
        look (self);
    }
    give_all_back (self);
    return NULL;
}

EcfsFsLocks *ecfs_fs_locks_start (EcfsFs *fs)
{
    if (!fs->shared)
        return NULL;
    EcfsFsLocks *self = g_new0 (EcfsFsLocks, 1);
    self->fs = fs;
    ecfs_mutex_init (&self->lock);
    ecfs_cond_init (&self->wake);
    self->owners = g_hash_table_new_full (hash_key, is_same_key, NULL, free_owner);
    self->n_connections = ecfs_catalog_lock_connections (fs->catalog);
    self->resting_us = INT64_MAX;
    self->tellers = ecfs_workers_new ("ecfs-locked", TELLERS);
    if (pthread_create (&self->thread, NULL, serve, self) != 0)
        g_error ("cannot start a thread");
    return self;
}

void ecfs_fs_locks_stop (EcfsFsLocks *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    self->stopping = true;
    ecfs_cond_signal (&self->wake);
    ecfs_mutex_unlock (&self->lock);
    (void) pthread_join (self->thread, NULL); /* fails only for threads that are none */
    ecfs_workers_free (g_steal_pointer (&self->tellers));
}

void ecfs_fs_locks_free (EcfsFsLocks *self)
{
    if (self == NULL)
        return;
    g_hash_table_unref (self->owners);
    ecfs_cond_clear (&self->wake);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

/* What the kernel asks */

static Request *new_request (fuse_req_t req, RequestKind kind, const EcfsLockOwner *key, EcfsHandle *handle)
{
    EcfsFsLocks *self = ecfs_fs_of (req)->locks;
    Request *request = g_new0 (Request, 1);
    request->req = req;
    request->kind = kind;
    request->key = *key;
    request->handle = handle;
    request->pid = fuse_req_ctx (req)->pid;
    request->locks = self;
    atomic_init (&request->interrupted, false);
    atomic_fetch_add (&self->n_busy, 1);
    return request;
}

static bool is_idle (const EcfsFsLocks *self)
{
    return self == NULL || atomic_load (&self->n_busy) == 0;
}

void ecfs_fs_locks_close (fuse_req_t req, uint64_t ino, uint64_t owner, int code)
{
    EcfsFsLocks *self = ecfs_fs_of (req)->locks;
    const EcfsLockOwner key = {.ino = ino, .owner = owner, .kind = ECFS_LOCK_FCNTL};
    if (is_idle (self)) {
        fuse_reply_err (req, code);
        return;
    }
    Request *request = new_request (req, REQUEST_CLOSE, &key, NULL);
    request->code = code;
    ask (self, request);
}

void ecfs_fs_locks_release (fuse_req_t req, EcfsHandle *handle)
{
    EcfsFs *fs = ecfs_fs_of (req);
    const EcfsLockOwner key = {.ino = handle->inode->ino};
    if (is_idle (fs->locks)) {
        ecfs_fs_handle_free (fs, handle);
        fuse_reply_err (req, 0);
    } else {
        ask (fs->locks, new_request (req, REQUEST_RELEASE, &key, handle));
    }
}

static EcfsLockType type_of (int type)
{
    return type == F_WRLCK ? ECFS_LOCK_EXCLUSIVE : type == F_RDLCK ? ECFS_LOCK_SHARED : ECFS_LOCK_NONE;
}

static void ask_for (fuse_req_t req, RequestKind kind, const EcfsLockOwner *key, EcfsHandle *handle,
                     const struct flock *lock, bool waits)
{
    Request *request = new_request (req, kind, key, handle);
    request->type = type_of (lock->l_type);
    request->range = (EcfsLockRange){.first = lock->l_start,
                                     .last = lock->l_len == 0 ? ECFS_LOCK_END : lock->l_start + lock->l_len - 1,
                                     .exclusive = lock->l_type == F_WRLCK};
    request->waits = waits;
    ask (request->locks, request);
}

static void op_getlk (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock)
{
    const EcfsLockOwner key = {.ino = ino, .owner = fi->lock_owner, .kind = ECFS_LOCK_FCNTL};
    ask_for (req, REQUEST_TEST, &key, ecfs_handle_of (fi), lock, false);
}

static void op_setlk (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, struct flock *lock, int sleep)
{
    const EcfsLockOwner key = {.ino = ino, .owner = fi->lock_owner, .kind = ECFS_LOCK_FCNTL};
    ask_for (req, REQUEST_SET, &key, ecfs_handle_of (fi), lock, sleep != 0);
}

static void op_flock (fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi, int operation)
{
    const EcfsLockOwner key = {.ino = ino, .owner = fi->lock_owner, .kind = ECFS_LOCK_FLOCK};
    const int what = operation & ~LOCK_NB;
    const struct flock lock = {.l_type = what == LOCK_EX ? F_WRLCK : what == LOCK_SH ? F_RDLCK : F_UNLCK};
    ask_for (req, REQUEST_SET, &key, ecfs_handle_of (fi), &lock, !(operation & LOCK_NB));
}

void ecfs_fs_lock_ops (struct fuse_lowlevel_ops *ops)
{
    ops->getlk = op_getlk;
    ops->setlk = op_setlk;
    ops->flock = op_flock;
}
