#include "locate/dht.h"

#include "endpoint/ssh/ssh_child.h"
#include "key/key.h"
#include "peer/peer_text.h"
#include "util/helper.h"
#include "util/io.h"
#include "util/lock.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELPER      "ecfs-locate"
#define AGAIN_US    (5 * G_USEC_PER_SEC) /* from one start to the next */
#define MOST_VALUES 256
#define MOST_BYTES  (4u << 20)
#define WRITE_US    (2 * G_USEC_PER_SEC)
#define MUTE_US     (30 * G_USEC_PER_SEC) /* that one who was asked, or begins, may say nothing */

struct EcfsDht {
    EcfsMutex lock;
    EcfsCond moved;
    EcfsDhtParams params; /* immutable, as all up to the next comment */
    char *helper;
    GPtrArray *hosts; /* of EcfsLocateLine: whom it asks first */
    int wake[2];
    pthread_t keeper;
    /* Guarded by lock. */
    bool runs; /* the keeper does */
    bool stopping;
    int fd; /* of the helper that runs and is ready; -1: none is */
    uint64_t number;
    int64_t mute_us;       /* since when it was asked, and has said nothing; 0: it has, or was not */
    GHashTable *questions; /* number → EcfsDhtQuestion */
    EcfsDhtState state;
    EcfsMutex writing; /* a line is written as a whole; outer to lock */
};

/* All guarded by lock, but for what does not change. */
struct EcfsDhtQuestion {
    EcfsDht *dht;
    uint64_t number;
    bool is_get;
    bool is_asked; /* the helper was ready */
    bool done;
    bool good;
    size_t bytes;
    GPtrArray *values;
};

/* The process */

static bool send_line (int fd, const EcfsLocateLine *line)
{
    int64_t deadline_us = ecfs_now_us () + WRITE_US;
    g_autofree char *text = ecfs_locate_line_format (line);
    size_t size = strlen (text);
    for (size_t done = 0; done < size;) {
        struct pollfd ready = {.fd = fd, .events = POLLOUT};
        ssize_t wrote = send (fd, text + done, size - done, MSG_NOSIGNAL);
        if (wrote < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        done += wrote > 0 ? (size_t) wrote : 0;
        if (done < size && (ecfs_now_us () >= deadline_us || poll (&ready, 1, 100) < 0))
            return false;
    }
    return true;
}

static void note_problem_locked (EcfsDht *self, const char *problem) ECFS_REQUIRES (self->lock)
{
    g_free (self->state.problem);
    self->state.problem = g_strdup (problem);
}

static void take_value_locked (EcfsDht *self, EcfsLocateLine *line) ECFS_REQUIRES (self->lock)
{
    EcfsDhtQuestion *question = g_hash_table_lookup (self->questions, &line->number);
    if (question == NULL || !question->is_get || question->values->len >= MOST_VALUES)
        return;
    question->bytes += g_bytes_get_size (line->bytes);
    if (question->bytes <= MOST_BYTES)
        g_ptr_array_add (question->values, g_steal_pointer (&line->bytes));
}

static void take_done_locked (EcfsDht *self, const EcfsLocateLine *line) ECFS_REQUIRES (self->lock)
{
    EcfsDhtQuestion *question = g_hash_table_lookup (self->questions, &line->number);
    if (question == NULL)
        return;
    question->done = true;
    question->good = line->good;
    self->state.n_unanswered += !line->good;
    g_hash_table_remove (self->questions, &line->number);
}

/* False: it says what it should not. */
static bool take_line (EcfsDht *self, int fd, EcfsLocateLine *line)
{
    bool good = true;
    ecfs_mutex_lock (&self->lock);
    self->mute_us = 0;
    switch (line->word) {
    case ECFS_LOCATE_READY:
        self->fd = fd;
        self->state.is_up = true;
        self->state.port = line->port;
        g_clear_pointer (&self->state.problem, g_free);
        break;
    case ECFS_LOCATE_VALUE:
        take_value_locked (self, line);
        break;
    case ECFS_LOCATE_DONE:
        take_done_locked (self, line);
        break;
    case ECFS_LOCATE_FAILED:
        note_problem_locked (self, line->text);
        break;
    case ECFS_LOCATE_BOOTSTRAP:
    case ECFS_LOCATE_PUT:
    case ECFS_LOCATE_GET:
        good = false;
        break;
    }
    ecfs_cond_broadcast (&self->moved);
    ecfs_mutex_unlock (&self->lock);
    return good;
}

/* The lines that are whole; *filled becomes what is left. */
static bool take_lines (EcfsDht *self, int fd, char *bytes, size_t *filled)
{
    char *at = bytes, *end;
    size_t size = *filled;
    while ((end = memchr (at, '\n', size)) != NULL) {
        EcfsLocateLine line;
        bool good = ecfs_locate_line_parse (at, (size_t) (end - at), &line);
        if (good) {
            good = take_line (self, fd, &line);
            ecfs_locate_line_clear (&line);
        }
        if (!good)
            return false;
        size -= (size_t) (end + 1 - at);
        at = end + 1;
    }
    memmove (bytes, at, size);
    *filled = size;
    return size < ECFS_LOCATE_LINE_MAX;
}

static bool is_mute (EcfsDht *self)
{
    ecfs_mutex_lock (&self->lock);
    bool mute = self->mute_us != 0 && ecfs_now_us () - self->mute_us > self->params.mute_us;
    if (mute)
        note_problem_locked (self, HELPER " does not answer");
    ecfs_mutex_unlock (&self->lock);
    return mute;
}

static void listen_to (EcfsDht *self, int fd)
{
    g_autofree char *bytes = g_malloc (ECFS_LOCATE_LINE_MAX);
    size_t filled = 0;
    for (guint i = 0; i < self->hosts->len; i++)
        (void) send_line (fd, self->hosts->pdata[i]); /* if it has ended, that is seen at once */
    while (!is_mute (self)) {
        struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = self->wake[0], .events = POLLIN}};
        (void) poll (fds, G_N_ELEMENTS (fds), (int) (self->params.mute_us / 2000)); /* both are looked at */
        if (fds[1].revents != 0)
            return;
        if (fds[0].revents == 0)
            continue;
        ssize_t got = read (fd, bytes + filled, ECFS_LOCATE_LINE_MAX - filled);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            continue;
        if (got <= 0)
            return;
        filled += (size_t) got;
        if (take_lines (self, fd, bytes, &filled))
            continue;
        ecfs_mutex_lock (&self->lock);
        note_problem_locked (self, HELPER " does not talk as it should");
        ecfs_mutex_unlock (&self->lock);
        return;
    }
}

static void give_up_questions_locked (EcfsDht *self) ECFS_REQUIRES (self->lock)
{
    void *question;
    GHashTableIter all;
    g_hash_table_iter_init (&all, self->questions);
    while (g_hash_table_iter_next (&all, NULL, &question))
        ((EcfsDhtQuestion *) question)->done = true;
    g_hash_table_remove_all (self->questions);
    ecfs_cond_broadcast (&self->moved);
}

static void run_once (EcfsDht *self)
{
    pid_t pid = 0;
    g_autoptr (GError) error = NULL;
    g_autofree char *port = g_strdup_printf ("%u", self->params.port);
    g_autofree char *network = g_strdup_printf ("%x", self->params.network);
    char *const words[] = {self->helper, port, network, NULL};
    char *const environment[] = {NULL}; /* there may be secrets in ours */
    ecfs_autofd fd = ecfs_ssh_child_spawn_with (words, environment, -1, -1, &pid, &error);
    ecfs_mutex_lock (&self->lock);
    self->mute_us = ecfs_now_us (); /* it is to say that it is ready */
    ecfs_mutex_unlock (&self->lock);
    if (fd >= 0)
        listen_to (self, fd);
    ecfs_mutex_lock (&self->writing); /* nobody writes to it any more */
    ecfs_mutex_lock (&self->lock);
    self->fd = -1;
    self->state.is_up = false;
    if (error != NULL)
        note_problem_locked (self, error->message);
    else if (self->state.problem == NULL && !self->stopping)
        note_problem_locked (self, HELPER " has ended");
    give_up_questions_locked (self);
    ecfs_mutex_unlock (&self->lock);
    ecfs_mutex_unlock (&self->writing);
    ecfs_ssh_child_end (pid);
}

static void *run_keeper (void *data)
{
    EcfsDht *self = data;
    for (bool goes_on = true; goes_on;) {
        int64_t again_us = ecfs_now_us () + AGAIN_US;
        run_once (self);
        ecfs_mutex_lock (&self->lock);
        while (!self->stopping && ecfs_now_us () < again_us)
            (void) ecfs_cond_wait_until (&self->moved, &self->lock, again_us); /* time is looked at anew */
        goes_on = !self->stopping;
        ecfs_mutex_unlock (&self->lock);
    }
    return NULL;
}

/* Life */

static void host_free (void *line)
{
    ecfs_locate_line_clear (line);
    g_free (line);
}

static bool parse_hosts (const char *text, GPtrArray *hosts, GError **error)
{
    g_auto (GStrv) parts = text == NULL ? NULL : g_strsplit (text, ",", ECFS_DHT_NODES_MAX + 1);
    for (guint i = 0; parts != NULL && parts[i] != NULL; i++) {
        EcfsLocateLine *line = g_new0 (EcfsLocateLine, 1);
        line->word = ECFS_LOCATE_BOOTSTRAP;
        g_ptr_array_add (hosts, line);
        if (i >= ECFS_DHT_NODES_MAX || !ecfs_peer_address_parse (g_strstrip (parts[i]), &line->text, &line->port))
            return ecfs_fail (error, EINVAL, "\"%s\" is no list of HOST:PORT", text);
    }
    return true;
}

EcfsDht *ecfs_dht_new (const EcfsDhtParams *params, GError **error)
{
    EcfsDht *self = g_new0 (EcfsDht, 1);
    ecfs_mutex_init (&self->lock);
    ecfs_mutex_init (&self->writing);
    ecfs_cond_init (&self->moved);
    self->params = *params;
    self->params.bootstrap = NULL; /* borrowed */
    self->params.mute_us = params->mute_us != 0 ? params->mute_us : MUTE_US;
    self->fd = self->wake[0] = self->wake[1] = -1;
    self->hosts = g_ptr_array_new_with_free_func (host_free);
    self->questions = g_hash_table_new (g_int64_hash, g_int64_equal);
    self->helper = ecfs_helper_path (HELPER, "ECFS_LOCATE_HELPER");
    bool good = true;
    if (access (self->helper, X_OK) != 0)
        good = ecfs_fail (error, ENOTSUP,
                          "there is no %s: install it (package ecfs-locate), or build ecfs with it "
                          "(meson setup -Dopendht=enabled, with libopendht-c-dev)",
                          self->helper);
    else if (!parse_hosts (params->bootstrap, self->hosts, error))
        good = false;
    else if (pipe2 (self->wake, O_CLOEXEC) != 0)
        good = ecfs_fail_errno (error, errno, "a pipe");
    if (good)
        return self;
    ecfs_dht_free (self);
    return NULL;
}

void ecfs_dht_stop (EcfsDht *self)
{
    if (self == NULL)
        return;
    ecfs_mutex_lock (&self->lock);
    bool is_first = !self->stopping;
    self->stopping = true;
    give_up_questions_locked (self);
    ecfs_mutex_unlock (&self->lock);
    if (is_first && self->wake[1] >= 0)
        (void) close (self->wake[1]); /* a pipe loses nothing */
}

void ecfs_dht_free (EcfsDht *self)
{
    if (self == NULL)
        return;
    ecfs_dht_stop (self);
    if (self->runs)
        (void) pthread_join (self->keeper, NULL);
    if (self->wake[0] >= 0)
        (void) close (self->wake[0]);
    g_ptr_array_unref (self->hosts);
    g_hash_table_unref (self->questions);
    ecfs_dht_state_clear (&self->state);
    g_free (self->helper);
    ecfs_cond_clear (&self->moved);
    ecfs_mutex_clear (&self->writing);
    ecfs_mutex_clear (&self->lock);
    g_free (self);
}

/* Questions */

void ecfs_dht_key (const uint8_t *secret, size_t secret_bytes, const void *salt, size_t salt_bytes, const char *label,
                   uint8_t ret_key[ECFS_LOCATE_KEY_BYTES])
{
    uint8_t derived[ECFS_KEY_BYTES];
    ecfs_key_derive (secret, secret_bytes, salt, salt_bytes, label, derived);
    memcpy (ret_key, derived, ECFS_LOCATE_KEY_BYTES);
}

static void ensure_running_locked (EcfsDht *self) ECFS_REQUIRES (self->lock)
{
    if (!self->runs && !self->stopping)
        self->runs = pthread_create (&self->keeper, NULL, run_keeper, self) == 0;
}

/* Registers it when the helper is ready. Returns where to write, -1: nowhere. */
static int enter (EcfsDht *self, EcfsDhtQuestion *question, int64_t deadline_us)
{
    ecfs_mutex_lock (&self->lock);
    ensure_running_locked (self);
    while (self->fd < 0 && !self->stopping && ecfs_cond_wait_until (&self->moved, &self->lock, deadline_us))
        ;
    int fd = self->stopping ? -1 : self->fd;
    question->number = ++self->number;
    question->is_asked = fd >= 0;
    question->done = fd < 0;
    if (fd >= 0) {
        g_hash_table_insert (self->questions, &question->number, question);
        self->mute_us = self->mute_us != 0 ? self->mute_us : ecfs_now_us ();
    }
    self->state.n_gets += question->is_get;
    self->state.n_puts += !question->is_get;
    self->state.n_unanswered += fd < 0;
    ecfs_mutex_unlock (&self->lock);
    return fd;
}

static EcfsDhtQuestion *begin (EcfsDht *self, EcfsLocateLine *line, int64_t deadline_us)
{
    EcfsDhtQuestion *question = g_new0 (EcfsDhtQuestion, 1);
    question->dht = self;
    question->is_get = line->word == ECFS_LOCATE_GET;
    question->values = g_ptr_array_new_with_free_func ((GDestroyNotify) g_bytes_unref);
    int fd = enter (self, question, deadline_us);
    ecfs_mutex_lock (&self->writing);
    ecfs_mutex_lock (&self->lock);
    bool is_there = fd >= 0 && self->fd == fd;
    ecfs_mutex_unlock (&self->lock);
    line->number = question->number;
    if (is_there && !send_line (fd, line))
        (void) shutdown (fd, SHUT_RDWR); /* half a line is none: it ends, and is started again */
    ecfs_mutex_unlock (&self->writing);
    return question;
}

EcfsDhtQuestion *ecfs_dht_put (EcfsDht *self, const uint8_t key[ECFS_LOCATE_KEY_BYTES], const void *bytes, size_t size,
                               int64_t deadline_us)
{
    EcfsLocateLine line = {.word = ECFS_LOCATE_PUT, .bytes = g_bytes_new (bytes, size)};
    memcpy (line.key, key, sizeof line.key);
    EcfsDhtQuestion *question = begin (self, &line, deadline_us);
    ecfs_locate_line_clear (&line);
    return question;
}

EcfsDhtQuestion *ecfs_dht_get (EcfsDht *self, const uint8_t key[ECFS_LOCATE_KEY_BYTES], int64_t deadline_us)
{
    EcfsLocateLine line = {.word = ECFS_LOCATE_GET};
    memcpy (line.key, key, sizeof line.key);
    return begin (self, &line, deadline_us);
}

GPtrArray *ecfs_dht_await (EcfsDhtQuestion *question, int64_t deadline_us, GError **error)
{
    EcfsDht *self = question->dht;
    ecfs_mutex_lock (&self->lock);
    while (!question->done && ecfs_cond_wait_until (&self->moved, &self->lock, deadline_us))
        ;
    if (!question->done) {
        g_hash_table_remove (self->questions, &question->number);
        self->state.n_unanswered++;
    }
    bool done = question->done, is_asked = question->is_asked, stopping = self->stopping;
    g_autofree char *problem = g_strdup (self->state.problem);
    ecfs_mutex_unlock (&self->lock);
    /* What one node has is as good as what another one has, even if the question as a whole got no answer. */
    GPtrArray *values = question->good || question->values->len > 0 ? g_ptr_array_ref (question->values) : NULL;
    g_ptr_array_unref (question->values);
    g_free (question);
    if (values != NULL)
        return values;
    if (stopping)
        (void) !ecfs_fail (error, ECANCELED, "it ends");
    else if (problem != NULL)
        (void) !ecfs_fail (error, ENOTCONN, "%s", problem);
    else if (!is_asked)
        (void) !ecfs_fail (error, ETIMEDOUT, HELPER " is not ready");
    else
        (void) !ecfs_fail (error, done ? ENOTCONN : ETIMEDOUT, "no other node of the hash table has answered");
    return NULL;
}

void ecfs_dht_state (EcfsDht *self, EcfsDhtState *ret_state)
{
    ecfs_mutex_lock (&self->lock);
    *ret_state = self->state;
    ret_state->problem = g_strdup (self->state.problem);
    ecfs_mutex_unlock (&self->lock);
}

void ecfs_dht_state_clear (EcfsDhtState *state)
{
    g_clear_pointer (&state->problem, g_free);
}
