/* Asking others that have the key, and do not do as they should. */
#include "peer/peer_priv.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STORED "stored."
#define EMPTY  3 /* times that one is believed */

static const uint8_t key[ECFS_KEY_BYTES] = {1};

/* One that answers as a test wants. */
typedef struct Other {
    void (*answer) (struct Other *self, SSL *ssl); /* a GET */
    EcfsPeers *asker;
    EcfsUuid id;
    EcfsPeerIdentity *identity;
    SSL_CTX *context;
    pthread_t thread;
    int fd;
    unsigned port;
    atomic_uint n_gets, n_shaken, n_resumed;
    uint64_t progress;
    atomic_bool is_plain; /* it is a server of something else */
    atomic_bool stopped;
} Other;

static void say (SSL *ssl, const char *text, size_t size)
{
    (void) SSL_write (ssl, text, (int) size); /* who asked may have gone */
}

static void say_text (SSL *ssl, const char *text)
{
    say (ssl, text, strlen (text));
}

static void say_zeros (Other *self, SSL *ssl)
{
    (void) self;
    say_text (ssl, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 8\r\n\r\n");
    say (ssl, "\0\0\0\0\0\0\0\0", 8);
}

static void promise (const Other *self, SSL *ssl)
{
    g_autofree char *text =
        g_strdup_printf ("HTTP/1.1 202 Accepted\r\nConnection: close\r\nEcfs-Progress: %" G_GUINT64_FORMAT
                         "\r\nContent-Length: 0\r\n\r\n",
                         self->progress);
    g_usleep (20000);
    say_text (ssl, text);
}

static void promise_for_ever (Other *self, SSL *ssl)
{
    self->progress++;
    promise (self, ssl);
}

static void promise_once (Other *self, SSL *ssl)
{
    promise (self, ssl);
    self->answer = say_zeros;
}

/* A header now and then, for half a minute. */
static void trickle (Other *self, SSL *ssl)
{
    say_text (ssl, "HTTP/1.1 200 OK\r\nConnection: close\r\n");
    for (unsigned i = 0; i < 100 && !atomic_load (&self->stopped) && SSL_write (ssl, "A: b\r\n", 6) > 0; i++)
        g_usleep (300000);
}

static void answer_one (Other *self, SSL *ssl)
{
    EcfsPeerRequest request;
    char head[ECFS_PEER_HEAD_MAX], id[ECFS_UUID_TEXT_SIZE];
    bool is_shaken = SSL_accept (ssl) == 1;
    int got = is_shaken ? SSL_read (ssl, head, sizeof head) : 0;
    atomic_fetch_add (&self->n_shaken, is_shaken);
    atomic_fetch_add (&self->n_resumed, is_shaken && SSL_session_reused (ssl));
    if (got <= 0 || ecfs_peer_request_parse (head, (size_t) got, &request) <= 0)
        return;
    ecfs_uuid_text (&self->id, id);
    g_autofree char *hello =
        g_strdup_printf ("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", strlen (id), id);
    g_autofree char *from =
        g_strdup_printf ("HTTP/1.1 302 Found\r\nConnection: close\r\nEcfs-From: %s\r\nContent-Length: 0\r\n\r\n", id);
    if (request.verb == ECFS_PEER_GET) {
        atomic_fetch_add (&self->n_gets, 1);
        self->answer (self, ssl);
    } else {
        say_text (ssl, request.verb == ECFS_PEER_HELLO ? hello : from);
    }
}

static void answer_plainly (int fd)
{
    char asked[1024];
    static const char text[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    g_assert_cmpint (write (fd, text, strlen (text)), ==, strlen (text));
    while (read (fd, asked, sizeof asked) > 0)
        ;
}

static void *run_other (void *data)
{
    Other *self = data;
    while (!atomic_load (&self->stopped)) {
        int fd = accept (self->fd, NULL, NULL);
        if (fd < 0)
            continue;
        if (atomic_load (&self->is_plain)) {
            answer_plainly (fd);
            (void) close (fd); /* only a socket */
            continue;
        }
        SSL *ssl = SSL_new (self->context);
        g_assert_cmpint (SSL_set_fd (ssl, fd), ==, 1);
        answer_one (self, ssl);
        (void) SSL_shutdown (ssl); /* politeness */
        SSL_free (ssl);
        (void) close (fd); /* only a socket */
    }
    return NULL;
}

static bool is_met (EcfsPeers *asker)
{
    EcfsPeersState state;
    ecfs_peers_state (asker, &state);
    bool is_up = ((const EcfsPeerState *) g_ptr_array_index (state.peers, 0))->is_up;
    ecfs_peers_state_clear (&state);
    return is_up;
}

/* And its asker, which has met it. */
static Other *other_new (void (*answer) (Other *self, SSL *ssl))
{
    Other *self = g_new0 (Other, 1);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl (INADDR_LOOPBACK)}};
    socklen_t size = sizeof address;
    self->answer = answer;
    self->id = ecfs_uuid_new ();
    self->identity = ecfs_peer_identity_new (key, &self->id);
    self->context = ecfs_peer_identity_serve (self->identity);
    self->fd = socket (AF_INET, SOCK_STREAM, 0);
    g_assert_cmpint (bind (self->fd, (struct sockaddr *) &address, size), ==, 0);
    g_assert_cmpint (listen (self->fd, 16), ==, 0);
    g_assert_cmpint (getsockname (self->fd, (struct sockaddr *) &address, &size), ==, 0);
    self->port = ntohs (address.sin_port);
    g_autofree char *list = g_strdup_printf ("127.0.0.1:%u", self->port);
    EcfsPeersParams params = {.list = list, .max_connections = 1, .key = &key};
    g_autoptr (GError) error = NULL;
    self->asker = ecfs_peers_new (&params, &error);
    g_assert_no_error (error);
    g_assert_cmpint (pthread_create (&self->thread, NULL, run_other, self), ==, 0);
    g_assert_true (ecfs_peers_serve (self->asker, &error)); /* it begins to greet */
    while (!is_met (self->asker))
        g_usleep (1000);
    return self;
}

static void other_free (Other *self)
{
    ecfs_peers_free (self->asker);
    atomic_store (&self->stopped, true);
    (void) shutdown (self->fd, SHUT_RDWR); /* ends accept () */
    g_assert_cmpint (pthread_join (self->thread, NULL), ==, 0);
    (void) close (self->fd); /* only a socket */
    SSL_CTX_free (self->context);
    ecfs_peer_identity_free (self->identity);
    g_free (self);
}

/* A cell of one range */
typedef struct Question {
    EcfsCacheLook look; /* first */
    EcfsPeerLook peers;
    EcfsCacheRange range;
    uint8_t bytes[sizeof STORED];
    atomic_int found; /* -1: not answered */
} Question;

static bool begin (EcfsCacheLook *look)
{
    (void) look;
    return true;
}

static EcfsCacheVerdict judge (EcfsCacheLook *look, unsigned range)
{
    static const uint8_t zeros[sizeof STORED];
    const uint8_t *bytes = look->ranges[range].bytes;
    if (memcmp (bytes, STORED, sizeof STORED) == 0)
        return ECFS_CACHE_FITS;
    return memcmp (bytes, zeros, sizeof zeros) == 0 ? ECFS_CACHE_ABSENT : ECFS_CACHE_WRONG;
}

static void done (EcfsCacheLook *look, bool found)
{
    atomic_store (&((Question *) look)->found, found);
}

static Question *question_new (uint64_t segment)
{
    Question *self = g_new0 (Question, 1);
    self->range = (EcfsCacheRange){.size = sizeof self->bytes, .bytes = self->bytes};
    self->look = (EcfsCacheLook){.cell = {.segment = segment},
                                 .ranges = &self->range,
                                 .n_ranges = 1,
                                 .begin = begin,
                                 .judge = judge,
                                 .done = done};
    self->peers.look = &self->look;
    atomic_store (&self->found, -1);
    return self;
}

/* It is not found. Takes @question. */
static void await (Other *self, Question *question)
{
    while (atomic_load (&question->found) < 0)
        g_usleep (1000);
    g_assert_false (atomic_load (&question->found));
    ecfs_peers_settle (self->asker, &question->look.cell);
    g_free (question);
}

/* False: nobody was asked. */
static bool ask (Other *self, uint64_t segment)
{
    Question *question = question_new (segment);
    bool asks = ecfs_peers_look (self->asker, &question->peers);
    if (asks)
        await (self, question);
    else
        g_free (question);
    return asks;
}

static void test_who_has_nothing_of_what_it_gives_is_left_alone (void)
{
    Other *other = other_new (say_zeros);
    for (uint64_t segment = 0; segment < 8; segment++)
        (void) ask (other, segment); /* soon there is nobody to ask */
    g_assert_cmpuint (atomic_load (&other->n_gets), >, 0);
    g_assert_cmpuint (atomic_load (&other->n_gets), <=, 3);
    other_free (other);
}

/* Where two wait for each other, each would else take the other's hope for news of its own. */
static void test_progress_is_passed_on_as_it_is_told (void)
{
    uint64_t progress;
    Other *other = other_new (promise_once);
    other->progress = 4711;
    g_autofree Question *question = question_new (0);
    g_assert_true (ecfs_peers_look (other->asker, &question->peers));
    while (atomic_load (&question->found) < 0)
        g_usleep (1000);
    g_assert_true (ecfs_peers_await (other->asker, &question->look.cell, 0, &progress));
    g_assert_cmpuint (progress, ==, 4711);
    ecfs_peers_settle (other->asker, &question->look.cell);
    other_free (other);
}

static void test_who_promises_for_ever_is_left_alone (void)
{
    Question *questions[EMPTY];
    Other *other = other_new (promise_for_ever);
    int64_t begun_us = ecfs_now_us ();
    for (uint64_t segment = 0; segment < EMPTY; segment++) {
        questions[segment] = question_new (segment);
        g_assert_true (ecfs_peers_look (other->asker, &questions[segment]->peers));
    }
    for (unsigned i = 0; i < EMPTY; i++)
        await (other, questions[i]);
    int64_t took_us = ecfs_now_us () - begun_us;
    g_test_message ("%.1f s, %u times", (double) took_us / G_USEC_PER_SEC, atomic_load (&other->n_gets));
    g_assert_cmpint (took_us, >, 15 * G_USEC_PER_SEC); /* it was believed for as long as that */
    g_assert_cmpint (took_us, <, 60 * G_USEC_PER_SEC);
    unsigned n = atomic_load (&other->n_gets);
    for (uint64_t segment = EMPTY; segment < 8; segment++)
        (void) ask (other, segment);
    EcfsPeersState state;
    ecfs_peers_state (other->asker, &state);
    const EcfsPeerState *peer = g_ptr_array_index (state.peers, 0);
    g_test_message ("%s", peer->problem);
    g_assert_true (peer->is_up && strstr (peer->problem, "promises") != NULL); /* for that, and nothing else */
    ecfs_peers_state_clear (&state);
    g_assert_cmpuint (atomic_load (&other->n_gets), ==, n);
    other_free (other);
}

/* Who asks endpoints as soon as all is slow makes all slower. */
static void test_patience_is_as_long_as_all_others_take (void)
{
    Other *other = other_new (say_zeros);
    g_autofree Question *question = question_new (0);
    for (unsigned i = 0; i < 100; i++)
        ecfs_peers_note_answer (other->asker, 1000);
    g_assert_cmpint (ecfs_peers_silent_us (other->asker, &question->peers), ==, ECFS_PEER_SILENT_US);
    atomic_store (&question->peers.endpoints_us, 5 * G_USEC_PER_SEC);
    g_assert_cmpint (ecfs_peers_silent_us (other->asker, &question->peers), ==, 5 * G_USEC_PER_SEC);
    atomic_store (&question->peers.endpoints_us, 0);
    for (unsigned i = 0; i < 100; i++)
        ecfs_peers_note_answer (other->asker, G_USEC_PER_SEC);
    g_assert_cmpint (ecfs_peers_silent_us (other->asker, &question->peers), >, 3 * G_USEC_PER_SEC);
    for (unsigned i = 0; i < 100; i++)
        ecfs_peers_note_answer (other->asker, 100 * G_USEC_PER_SEC);
    g_assert_cmpint (ecfs_peers_silent_us (other->asker, &question->peers), ==, ECFS_PEER_SILENT_MOST_US);
    other_free (other);
}

static void test_headers_that_trickle_keep_nobody (void)
{
    EcfsPeerAnswer answer;
    atomic_bool stopped = false;
    Other *other = other_new (trickle);
    g_autofree char *url = g_strdup_printf ("https://127.0.0.1:%u", other->port);
    EcfsPeerRequest request = {.verb = ECFS_PEER_GET, .bytes = sizeof STORED};
    int64_t begun_us = ecfs_now_us ();
    g_assert_false (ecfs_peer_call (other->asker->client, url, &request, NULL, &stopped, &answer));
    g_assert_cmpint (ecfs_now_us () - begun_us, <, 20 * G_USEC_PER_SEC);
    g_assert_true (answer.is_silent);
    other_free (other);
}

/* What is told of it where it is greeted; g_free (). */
static char *problem_with (const Other *other, const uint8_t (*with)[ECFS_KEY_BYTES])
{
    EcfsPeerAnswer answer;
    atomic_bool stopped = false;
    const EcfsUuid id = ecfs_uuid_new ();
    g_autofree char *url = g_strdup_printf ("https://127.0.0.1:%u", other->port);
    EcfsPeerIdentity *identity = ecfs_peer_identity_new (*with, &id);
    EcfsPeerClient *client = ecfs_peer_client_new (identity, NULL);
    EcfsPeerRequest request = {.verb = ECFS_PEER_HELLO};
    g_assert_false (ecfs_peer_call (client, url, &request, NULL, &stopped, &answer));
    ecfs_peer_client_free (client);
    ecfs_peer_identity_free (identity);
    return g_strdup (answer.problem);
}

/* Of the key that was rotated, or of none: that is what is to be told. */
static void test_who_has_another_key_is_told_of (void)
{
    const uint8_t older[ECFS_KEY_BYTES] = {2};
    Other *other = other_new (promise_for_ever);
    g_autofree char *problem = problem_with (other, &older);
    g_assert_nonnull (strstr (problem, "ecfs key rotate"));
    other_free (other);
}

static void test_who_is_no_peer_is_told_of (void)
{
    Other *other = other_new (promise_for_ever);
    atomic_store (&other->is_plain, true);
    g_autofree char *problem = problem_with (other, &key);
    g_assert_nonnull (strstr (problem, "look at the address"));
    other_free (other);
}

static void *call_once (void *data)
{
    Other *other = data;
    EcfsPeerAnswer answer;
    atomic_bool stopped = false;
    g_autofree char *url = g_strdup_printf ("https://127.0.0.1:%u", other->port);
    EcfsPeerRequest request = {.verb = ECFS_PEER_GET, .bytes = sizeof STORED};
    g_assert_true (ecfs_peer_call (other->asker->client, url, &request, NULL, &stopped, &answer));
    return NULL;
}

/* Each of a handle of its own. What the first has shown is not shown again: that takes a third of the processor. */
static void test_connections_share_a_session (void)
{
    enum { CALLS = 4 };
    pthread_t threads[CALLS];
    Other *other = other_new (promise_for_ever); /* it has greeted by a first one */
    for (unsigned i = 0; i < CALLS; i++)
        g_assert_cmpint (pthread_create (&threads[i], NULL, call_once, other), ==, 0);
    for (unsigned i = 0; i < CALLS; i++)
        (void) pthread_join (threads[i], NULL); /* ours */
    g_assert_cmpuint (atomic_load (&other->n_shaken), >=, CALLS + 1);
    g_assert_cmpuint (atomic_load (&other->n_resumed), >=, 1); /* those that meet may all go without it */
    other_free (other);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    (void) signal (SIGPIPE, SIG_IGN); /* as a mount does */
    g_test_add_func ("/peer/who-has-nothing-of-what-it-gives-is-left-alone",
                     test_who_has_nothing_of_what_it_gives_is_left_alone);
    g_test_add_func ("/peer/progress-is-passed-on-as-it-is-told", test_progress_is_passed_on_as_it_is_told);
    g_test_add_func ("/peer/who-promises-for-ever-is-left-alone", test_who_promises_for_ever_is_left_alone);
    g_test_add_func ("/peer/patience-is-as-long-as-all-others-take", test_patience_is_as_long_as_all_others_take);
    g_test_add_func ("/peer/headers-that-trickle-keep-nobody", test_headers_that_trickle_keep_nobody);
    g_test_add_func ("/peer/who-has-another-key-is-told-of", test_who_has_another_key_is_told_of);
    g_test_add_func ("/peer/who-is-no-peer-is-told-of", test_who_is_no_peer_is_told_of);
    g_test_add_func ("/peer/connections-share-a-session", test_connections_share_a_session);
    return g_test_run ();
}
