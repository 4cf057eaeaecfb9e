#include "archive/month.h"

#include "archive/common.h"
#include "archive/month_text.h"
#include "util/io.h"
#include "util/ticker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PERIOD_US (10 * G_USEC_PER_SEC)
#define MAX_SIZE  (1 << 20)

#define TURN_US      (2 * G_USEC_PER_SEC) /* for which others are waited for: they have it for milliseconds */
#define TURN_LOOK_US 10000

/* An endpoint, by position. */
typedef struct Page {
    EcfsMonthUse added; /* of what this process has sent, what the file has */
    bool was_spent;     /* as it was told last */
} Page;

struct EcfsMonthBook {
    const char *directory; /* immutable, as the next two */
    const EcfsArchiveEndpoint *endpoints;
    const atomic_size_t *n_endpoints;
    EcfsMutex lock;
    EcfsTicker *ticker; /* NULL: nothing is to be counted; guarded by lock, as the rest */
    Page *pages;        /* ECFS_ENDPOINTS_MAX */
    char *trouble;      /* of the last look; NULL: none */
};

char *ecfs_month_text (int64_t now_s)
{
    g_autoptr (GDateTime) now = g_date_time_new_from_unix_utc (now_s);
    return now == NULL ? g_strdup ("") : g_date_time_format (now, "%Y-%m");
}

static bool counts (const EcfsArchiveEndpoint *endpoint)
{
    return endpoint->endpoint != NULL && endpoint->state != ECFS_ENDPOINT_REMOVED &&
           ecfs_tariff_counts (ecfs_endpoint_tariff (endpoint->endpoint));
}

static bool any_counts (const EcfsMonthBook *self)
{
    size_t n = *self->n_endpoints;
    for (size_t i = 0; i < n; i++)
        if (counts (&self->endpoints[i]))
            return true;
    return false;
}

static char *path_of (const EcfsMonthBook *self, const char *name)
{
    return g_build_filename (self->directory, name, NULL);
}

/* The file */

static GKeyFile *load (const char *path, const char *month, GError **error)
{
    g_autofree char *text = NULL;
    g_autoptr (GError) why = NULL;
    size_t size = 0;
    if (!ecfs_read_file (path, MAX_SIZE, &text, &size, &why) && why->code != ENOENT) {
        g_propagate_error (error, g_steal_pointer (&why));
        return NULL;
    }
    GKeyFile *file = ecfs_month_file_parse (text, size, month, error);
    if (file == NULL)
        (void) !ecfs_prefix (error, "%s", path);
    return file;
}

/* What makes no sense is put aside, so that limits count again: from what this process knows of the month, or from 0.
 * EBADMSG stays where even that cannot be done. */
static GKeyFile *begin_anew (EcfsMonthBook *self, const char *path, const char *month, GError **error)
    ECFS_REQUIRES (self->lock)
{
    g_autofree char *aside = path_of (self, ECFS_MONTH_DAMAGED_NAME);
    if (((*error)->code != EBADMSG && (*error)->code != EFBIG) || rename (path, aside) != 0)
        return NULL;
    g_warning ("%s: it is kept as %s, and counting goes on from what is known here", (*error)->message, aside);
    g_clear_error (error);
    GKeyFile *file = ecfs_month_file_parse (NULL, 0, month, error);
    for (size_t i = 0; file != NULL && i < *self->n_endpoints; i++) {
        EcfsMonth known;
        char uuid[ECFS_UUID_TEXT_SIZE];
        if (!counts (&self->endpoints[i]))
            continue;
        ecfs_uuid_text (&self->endpoints[i].uuid, uuid);
        ecfs_endpoint_month (self->endpoints[i].endpoint, &known);
        EcfsMonthUse sent;
        ecfs_endpoint_sent (self->endpoints[i].endpoint, &sent);
        const EcfsMonthUse *added = &self->pages[i].added; /* the rest is added again */
        known.used.requests -= MIN (known.used.requests, sent.requests - added->requests);
        known.used.egress_bytes -= MIN (known.used.egress_bytes, sent.egress_bytes - added->egress_bytes);
        ecfs_month_file_put (file, uuid, &known.used);
    }
    return file;
}

/* EBADMSG also where a number of an endpoint that counts is none. */
static bool check_uses (EcfsMonthBook *self, GKeyFile *file, const char *path, GError **error)
    ECFS_REQUIRES (self->lock)
{
    for (size_t i = 0; i < *self->n_endpoints; i++) {
        EcfsMonthUse use;
        char uuid[ECFS_UUID_TEXT_SIZE];
        ecfs_uuid_text (&self->endpoints[i].uuid, uuid);
        if (counts (&self->endpoints[i]) && !ecfs_month_file_use (file, uuid, &use, error))
            return ecfs_prefix (error, "%s", path);
    }
    return true;
}

static GKeyFile *load_or_begin (EcfsMonthBook *self, const char *path, const char *month, bool *ret_new, GError **error)
    ECFS_REQUIRES (self->lock)
{
    GError *why = NULL;
    GKeyFile *file = load (path, month, &why);
    if (file != NULL && !check_uses (self, file, path, &why))
        g_clear_pointer (&file, g_key_file_unref);
    *ret_new = file == NULL;
    if (file == NULL)
        file = begin_anew (self, path, month, &why);
    if (why != NULL)
        g_propagate_error (error, why);
    return file;
}

static bool save (GKeyFile *file, const char *path, GError **error)
{
    gsize size = 0;
    g_autofree char *text = g_key_file_to_data (file, &size, NULL);
    return ecfs_replace_file (path, text, size, 0600, error);
}

/* Adding */

/* What one endpoint has used, with what this process sent and nobody has added yet. */
typedef struct Sum {
    EcfsMonthUse sent;
    EcfsMonthUse used;
} Sum;

static bool add_up (EcfsMonthBook *self, GKeyFile *file, size_t n, Sum *sums, bool *ret_grows, GError **error)
    ECFS_REQUIRES (self->lock)
{
    *ret_grows = false;
    for (size_t i = 0; i < n; i++) {
        const EcfsArchiveEndpoint *endpoint = &self->endpoints[i];
        char uuid[ECFS_UUID_TEXT_SIZE];
        Sum *sum = &sums[i];
        if (!counts (endpoint))
            continue;
        ecfs_uuid_text (&endpoint->uuid, uuid);
        if (!ecfs_month_file_use (file, uuid, &sum->used, error))
            return false;
        ecfs_endpoint_sent (endpoint->endpoint, &sum->sent);
        const EcfsMonthUse *added = &self->pages[i].added;
        *ret_grows = *ret_grows || sum->sent.requests > added->requests || sum->sent.egress_bytes > added->egress_bytes;
        sum->used.requests = ecfs_add_up (sum->used.requests, sum->sent.requests - added->requests);
        sum->used.egress_bytes = ecfs_add_up (sum->used.egress_bytes, sum->sent.egress_bytes - added->egress_bytes);
        ecfs_month_file_put (file, uuid, &sum->used);
    }
    return true;
}

static void tell_locked (EcfsMonthBook *self, size_t position) ECFS_REQUIRES (self->lock)
{
    Page *page = &self->pages[position];
    EcfsEndpointHealth health = {0};
    ecfs_endpoint_health (self->endpoints[position].endpoint, &health);
    if (health.spent && !page->was_spent && !health.down)
        g_message ("%s; it is read only where others have too little, until the next month begins (UTC)",
                   health.reason);
    else if (!health.spent && page->was_spent)
        g_message ("endpoint %s is used as before: another month has begun, or its limit was raised",
                   self->endpoints[position].name);
    page->was_spent = health.spent;
    ecfs_endpoint_health_clear (&health);
}

/* Endpoints learn what was used also where that cannot be kept. */
static bool add_locked (EcfsMonthBook *self, const char *month, GError **error) ECFS_REQUIRES (self->lock)
{
    bool grows, is_new;
    size_t n = *self->n_endpoints;
    g_autofree Sum *sums = g_new0 (Sum, n + 1);
    g_autofree char *path = path_of (self, ECFS_MONTH_NAME);
    g_autoptr (GKeyFile) file = load_or_begin (self, path, month, &is_new, error);
    if (file == NULL)
        return false;
    if (!add_up (self, file, n, sums, &grows, error))
        return ecfs_prefix (error, "%s", path);
    bool saved = (!grows && !is_new) || save (file, path, error);
    for (size_t i = 0; i < n; i++) {
        if (!counts (&self->endpoints[i]))
            continue;
        ecfs_endpoint_note_month (self->endpoints[i].endpoint, &sums[i].used, &sums[i].sent);
        if (saved)
            self->pages[i].added = sums[i].sent;
        tell_locked (self, i);
    }
    return saved;
}

/* "process 4711 (cat)": who has the lock of that file, as far as the kernel tells; g_free () */
static char *holder_of (int fd)
{
    struct stat status;
    g_autofree char *locks = NULL;
    if (fstat (fd, &status) != 0 || !g_file_get_contents ("/proc/locks", &locks, NULL, NULL))
        return g_strdup ("another process");
    g_autofree char *file = g_strdup_printf (" %02x:%02x:%" PRIu64 " ", major (status.st_dev), minor (status.st_dev),
                                             (uint64_t) status.st_ino);
    g_auto (GStrv) lines = g_strsplit (locks, "\n", -1);
    for (char **line = lines; *line != NULL; line++) {
        int pid;
        if (strstr (*line, file) == NULL || strstr (*line, "->") != NULL ||
            sscanf (*line, "%*s FLOCK %*s %*s %d", &pid) != 1 || pid <= 0)
            continue;
        g_autofree char *path = g_strdup_printf ("/proc/%d/comm", pid), *name = NULL;
        bool named = g_file_get_contents (path, &name, NULL, NULL);
        return g_strdup_printf ("process %d%s%s%s", pid, named ? " (" : "", named ? g_strstrip (name) : "",
                                named ? ")" : "");
    }
    return g_strdup ("another process");
}

/* One process at a time; who may not write here only reads. */
static bool take_turn (EcfsMonthBook *self, const char *month, GError **error) ECFS_REQUIRES (self->lock)
{
    g_autofree char *path = path_of (self, ECFS_MONTH_LOCK_NAME);
    ecfs_autofd fd = open (path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int64_t until_us = ecfs_now_us () + (self->trouble == NULL ? TURN_US : 0); /* who waits in vain does so once */
    while (fd >= 0 && flock (fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EINTR && errno != EWOULDBLOCK)
            return ecfs_fail_errno (error, errno, "cannot lock %s", path);
        if (ecfs_now_us () >= until_us) {
            g_autofree char *who = holder_of (fd);
            return ecfs_fail (error, EBUSY, "%s is locked by %s: end that, as nothing is counted until then", path,
                              who);
        }
        g_usleep (TURN_LOOK_US);
    }
    return add_locked (self, month, error);
}

bool ecfs_month_book_add (EcfsMonthBook *self, int64_t now_s, GError **error)
{
    g_autofree char *month = ecfs_month_text (now_s);
    g_autoptr (GError) why = NULL;
    ecfs_mutex_lock (&self->lock);
    bool added = take_turn (self, month, &why);
    bool news = !added && g_strcmp0 (self->trouble, why->message) != 0;
    g_free (self->trouble);
    self->trouble = added ? NULL : g_strdup (why->message);
    ecfs_mutex_unlock (&self->lock);
    if (news)
        g_warning ("what endpoints have used this month is not known, or not kept: %s", why->message);
    if (!added)
        g_propagate_error (error, g_steal_pointer (&why));
    return added;
}

char *ecfs_month_trouble (EcfsMonthBook *self)
{
    g_autofree char *path = path_of (self, ECFS_MONTH_DAMAGED_NAME);
    bool is_aside = any_counts (self) && access (path, F_OK) == 0;
    ecfs_mutex_lock (&self->lock);
    char *trouble = g_strdup (self->trouble);
    ecfs_mutex_unlock (&self->lock);
    if (trouble == NULL && is_aside)
        trouble = g_strdup_printf ("the file month was damaged, and begun anew with what was known: more may have been "
                                   "used; the damaged one is %s: remove it when you have seen this",
                                   path);
    return trouble;
}

/* Life cycle */

static void look (void *user)
{
    (void) !ecfs_month_book_add (user, g_get_real_time () / G_USEC_PER_SEC, NULL); /* it tells itself */
}

EcfsMonthBook *ecfs_month_book_new (const char *directory, const EcfsArchiveEndpoint *endpoints,
                                    const atomic_size_t *n_endpoints)
{
    EcfsMonthBook *self = g_new0 (EcfsMonthBook, 1);
    self->directory = directory;
    self->endpoints = endpoints;
    self->n_endpoints = n_endpoints;
    ecfs_mutex_init (&self->lock);
    self->pages = g_new0 (Page, ECFS_ENDPOINTS_MAX);
    return self;
}

void ecfs_month_book_begin (EcfsMonthBook *self)
{
    if (!any_counts (self))
        return;
    look (self);
    ecfs_mutex_lock (&self->lock);
    if (self->ticker == NULL)
        self->ticker = ecfs_ticker_start (PERIOD_US, look, self);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_month_book_free (EcfsMonthBook *self)
{
    if (self == NULL)
        return;
    bool counted = self->ticker != NULL;
    ecfs_ticker_stop (self->ticker);
    if (counted)
        look (self);
    ecfs_mutex_clear (&self->lock);
    g_free (self->trouble);
    g_free (self->pages);
    g_free (self);
}
