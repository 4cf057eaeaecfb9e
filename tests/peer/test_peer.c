/* What peers say to each other, who gets which segment from whom, and one that serves another. */
#include "peer/identity.h"
#include "peer/lists.h"
#include "peer/peer.h"
#include "peer/peer_text.h"

#include <string.h>

static EcfsCacheCell cell_of (uint64_t segment)
{
    EcfsCacheCell cell = {.segment = segment};
    memset (cell.object.bytes, 0x5a, sizeof cell.object.bytes);
    return cell;
}

static EcfsUuid id_of (unsigned number)
{
    return (EcfsUuid){{(uint8_t) number, (uint8_t) (number >> 8), 1}};
}

static void test_requests_come_back (void)
{
    static const EcfsPeerVerb verbs[] = {ECFS_PEER_HELLO, ECFS_PEER_GET, ECFS_PEER_WHERE, ECFS_PEER_CLAIM,
                                         ECFS_PEER_JOIN};
    for (unsigned i = 0; i < G_N_ELEMENTS (verbs); i++) {
        EcfsPeerRequest request = {.verb = verbs[i], .cell = cell_of (1u << 20), .bytes = 4711}, back;
        request.wait_ms = verbs[i] == ECFS_PEER_GET ? 250 : 0;
        request.asker = verbs[i] >= ECFS_PEER_WHERE ? id_of (7) : request.asker;
        g_autofree char *path = ecfs_peer_request_path (&request);
        g_autofree char *head = g_strdup_printf ("GET %s HTTP/1.1\r\nHost: there\r\n\r\nmore", path);
        g_assert_cmpint (ecfs_peer_request_parse (head, strlen (head), &back), ==, strlen (head) - 4);
        g_autofree char *again = ecfs_peer_request_path (&back);
        g_assert_cmpstr (again, ==, path);
        g_assert_false (back.closes);
        for (size_t size = 0; size < strlen (head) - 4; size++)
            g_assert_cmpint (ecfs_peer_request_parse (head, size, &back), ==, 0);
    }
}

static void test_nobody_waits_for_longer_than_may_be (void)
{
    EcfsPeerRequest request;
    static const char head[] = "GET /v1/get/5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a/1/9/600000 HTTP/1.1\r\n\r\n";
    g_assert_cmpint (ecfs_peer_request_parse (head, strlen (head), &request), ==, strlen (head));
    g_assert_cmpuint (request.wait_ms, ==, ECFS_PEER_WAIT_MAX_MS);
}

static void test_what_is_no_request_is_refused (void)
{
    static const char *const heads[] = {
        "POST /v1/hello HTTP/1.1\r\n\r\n",
        "GET /v1/hello HTTP/1.0\r\n\r\n",
        "GET /v1/hello\r\n\r\n",
        "GET /v2/hello HTTP/1.1\r\n\r\n",
        "GET /v1/hello/more HTTP/1.1\r\n\r\n",
        "GET /v1/hello HTTP/1.1\r\nContent-Length: 3\r\n\r\n",
        "GET /v1/hello HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
        "GET /v1/get/../../etc/1/1/1 HTTP/1.1\r\n\r\n",
        "GET /v1/get/5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a/-1/9/0 HTTP/1.1\r\n\r\n",
        "GET /v1/get/5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a/1/0/0 HTTP/1.1\r\n\r\n",
        "GET /v1/get/5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a/1/9/1s HTTP/1.1\r\n\r\n",
        "GET /v1/get/5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a/1/99999999999999999999/0 HTTP/1.1\r\n\r\n",
    };
    EcfsPeerRequest request;
    for (unsigned i = 0; i < G_N_ELEMENTS (heads); i++)
        g_assert_cmpint (ecfs_peer_request_parse (heads[i], strlen (heads[i]), &request), ==, -EPROTO);
    g_autofree char *endless = g_strnfill (ECFS_PEER_HEAD_MAX, 'x');
    memcpy (endless, "GET /v1/", 8);
    g_assert_cmpint (ecfs_peer_request_parse (endless, ECFS_PEER_HEAD_MAX - 1, &request), ==, 0);
    g_assert_cmpint (ecfs_peer_request_parse (endless, ECFS_PEER_HEAD_MAX, &request), ==, -EPROTO);
}

static void test_addresses_are_hosts_with_ports (void)
{
    static const char *const wrong[] = {"",      "host",  ":1",       "host:", "host:0",  "host:65536", "a b:1",
                                        "::1:1", "[::1]", "[::1]x:1", "[]:1",  "host:1x", "-x:1",       "a/b:1"};
    unsigned port;
    for (unsigned i = 0; i < G_N_ELEMENTS (wrong); i++) {
        char *host = NULL;
        g_assert_false (ecfs_peer_address_parse (wrong[i], &host, &port));
        g_assert_null (host);
    }
    g_autofree char *host = NULL, *address = NULL;
    g_assert_true (ecfs_peer_address_parse ("a-b.example:65535", &host, &port));
    g_assert_cmpstr (host, ==, "a-b.example");
    g_assert_cmpuint (port, ==, 65535);
    g_assert_true (ecfs_peer_address_parse ("[fe80::1]:1", &address, &port));
    g_assert_cmpstr (address, ==, "fe80::1");
    g_assert_true (ecfs_peers_check ("a:1, b:2,[::1]:3"));
    g_assert_false (ecfs_peers_check ("a:1,,b:2"));
    g_assert_false (ecfs_peers_check (""));
}

static bool ask (EcfsPeerLists *lists, unsigned asker, unsigned without, int64_t now_us, EcfsUuid *ret_from)
{
    EcfsCacheCell cell = cell_of (3);
    EcfsUuid nil = {{0}}, id = id_of (asker), gone = id_of (without);
    return ecfs_peer_lists_ask (lists, &cell, asker == 0 ? &nil : &id, without == 0 ? &nil : &gone, now_us, ret_from);
}

static void test_one_of_many_fetches_and_each_gives_to_few (void)
{
    EcfsUuid from;
    unsigned given[34] = {0};
    EcfsPeerLists *lists = ecfs_peer_lists_new ();
    g_assert_false (ask (lists, 1, 0, 0, &from)); /* the first */
    for (unsigned i = 2; i <= 32; i++) {
        g_assert_true (ask (lists, i, 0, 0, &from));
        g_assert_cmpuint (from.bytes[0], <, i);
        given[from.bytes[0]]++;
        EcfsUuid again;
        g_assert_true (ask (lists, i, 0, 0, &again)); /* it is told the same */
        g_assert_true (ecfs_uuid_equal (&from, &again));
    }
    for (unsigned i = 1; i <= 32; i++)
        g_assert_cmpuint (given[i], <=, ECFS_PEER_FAN_OUT);
    g_assert_true (ask (lists, 0, 0, 0, &from)); /* who serves nobody is on no list */
    g_assert_true (ask (lists, 33, 0, 0, &from));
    ecfs_peer_lists_free (lists);
}

static void test_who_gives_nothing_is_off_the_list (void)
{
    EcfsUuid from;
    EcfsPeerLists *lists = ecfs_peer_lists_new ();
    g_assert_false (ask (lists, 1, 0, 0, &from));
    for (unsigned i = 2; i <= 6; i++)
        g_assert_true (ask (lists, i, 0, 0, &from));
    g_assert_false (ask (lists, 2, 1, 0, &from)); /* the first after it fetches, … */
    for (unsigned i = 3; i <= 6; i++) {           /* … and all others know that */
        g_assert_true (ask (lists, i, 1, 0, &from));
        g_assert_cmpuint (from.bytes[0], ==, 2);
    }
    g_assert_false (ask (lists, 7, 0, 61 * G_USEC_PER_SEC, &from)); /* who had it then may not any more */
    ecfs_peer_lists_free (lists);
}

/* Who fetches it for all, and who only takes what others have: neither is sent to itself. */
static void test_a_claim_holds_for_one_and_an_offer_for_none (void)
{
    EcfsUuid from, nil = {{0}}, one = id_of (1), two = id_of (2), three = id_of (3);
    EcfsCacheCell cell = cell_of (3);
    EcfsPeerLists *lists = ecfs_peer_lists_new ();
    g_assert_false (ecfs_peer_lists_join (lists, &cell, &two, &nil, 0, &from));
    g_assert_true (ecfs_peer_lists_claim (lists, &cell, &one, 0, &from)); /* so the offer did not make two the first */
    g_assert_true (ecfs_peer_lists_claim (lists, &cell, &one, 0, &from));
    g_assert_false (ecfs_peer_lists_claim (lists, &cell, &two, 0, &from));
    g_assert_true (ecfs_uuid_equal (&from, &one));
    g_assert_true (ecfs_peer_lists_join (lists, &cell, &two, &nil, 0, &from));
    g_assert_true (ecfs_uuid_equal (&from, &one));
    g_assert_false (ecfs_peer_lists_ask (lists, &cell, &two, &one, 0, &from)); /* it joined, and is the next */
    g_assert_true (ecfs_peer_lists_ask (lists, &cell, &three, &nil, 0, &from));
    g_assert_true (ecfs_uuid_equal (&from, &two));
    ecfs_peer_lists_free (lists);
}

/* As it happened where a slow line took the connections of the one that fetched: all waited for one another, each for
 * seconds, and came back. */
static void test_those_who_only_hope_are_not_sent_to_each_other (void)
{
    EcfsUuid from, nil = {{0}}, one = id_of (1), wants = id_of (9);
    EcfsCacheCell cell = cell_of (3);
    EcfsPeerLists *lists = ecfs_peer_lists_new ();
    g_assert_true (ecfs_peer_lists_claim (lists, &cell, &wants, 0, &from));
    for (unsigned i = 2; i <= 6; i++) {
        EcfsUuid id = id_of (i);
        g_assert_true (ecfs_peer_lists_join (lists, &cell, &id, &nil, 0, &from));
    }
    for (unsigned i = 2; i <= 6; i++) { /* the one that fetched has failed */
        EcfsUuid id = id_of (i);
        g_assert_false (ecfs_peer_lists_join (lists, &cell, &id, &wants, 0, &from));
    }
    g_assert_true (ecfs_peer_lists_claim (lists, &cell, &one, 0, &from)); /* so it takes over at once, … */
    g_assert_true (ecfs_peer_lists_join (lists, &cell, &wants, &nil, 0, &from));
    g_assert_true (ecfs_uuid_equal (&from, &one));
    g_assert_false (ecfs_peer_lists_join (lists, &cell, &one, &nil, 0, &from)); /* … until it has nothing, either */
    g_assert_true (ecfs_peer_lists_ask (lists, &cell, &one, &nil, 0, &from));   /* who joined meanwhile may have it */
    g_assert_true (ecfs_uuid_equal (&from, &wants));
    ecfs_peer_lists_has (lists, &cell, &one, 0); /* better, who does */
    g_assert_true (ecfs_peer_lists_join (lists, &cell, &wants, &nil, 0, &from));
    g_assert_true (ecfs_uuid_equal (&from, &one));
    ecfs_peer_lists_free (lists);
}

static void test_lists_do_not_grow_for_ever (void)
{
    EcfsUuid from, nil = {{0}}, id = id_of (1);
    EcfsPeerLists *lists = ecfs_peer_lists_new ();
    for (uint64_t i = 0; i < 20000; i++) {
        EcfsCacheCell cell = cell_of (i);
        g_assert_false (ecfs_peer_lists_ask (lists, &cell, &id, &nil, (int64_t) i * 1000, &from));
    }
    g_assert_cmpuint (ecfs_peer_lists_n (lists), <=, 4096);
    ecfs_peer_lists_free (lists);
}

/* Many segments within a minute: the newest count, not the oldest. */
static void test_a_new_list_takes_the_place_of_the_oldest (void)
{
    EcfsUuid from, nil = {{0}}, one = id_of (1), two = id_of (2);
    EcfsPeerLists *lists = ecfs_peer_lists_new ();
    for (uint64_t i = 0; i < 6000; i++) {
        EcfsCacheCell cell = cell_of (i), first = cell_of (0);
        g_assert_false (ecfs_peer_lists_ask (lists, &cell, &one, &nil, (int64_t) i, &from));
        g_assert_true (ecfs_peer_lists_ask (lists, &cell, &two, &nil, (int64_t) i, &from));
        g_assert_true (ecfs_peer_lists_ask (lists, &first, &two, &nil, (int64_t) i, &from)); /* is used all the time */
        g_assert_true (ecfs_uuid_equal (&from, &one));
    }
    g_assert_cmpuint (ecfs_peer_lists_n (lists), <=, 4096);
    ecfs_peer_lists_free (lists);
}

static bool is_of (const EcfsPeerIdentity *one, const EcfsPeerIdentity *other)
{
    X509_STORE *store = X509_STORE_new ();
    X509_STORE_CTX *context = X509_STORE_CTX_new ();
    g_assert_cmpint (X509_STORE_add_cert (store, one->authority), ==, 1);
    g_assert_cmpint (X509_STORE_CTX_init (context, store, other->certificate, NULL), ==, 1);
    bool good = X509_verify_cert (context) == 1;
    X509_STORE_CTX_free (context);
    X509_STORE_free (store);
    return good;
}

static void test_who_has_the_key_is_known (void)
{
    const uint8_t key[ECFS_KEY_BYTES] = {1}, other_key[ECFS_KEY_BYTES] = {2};
    EcfsUuid ids[] = {id_of (1), id_of (2)};
    EcfsPeerIdentity *one = ecfs_peer_identity_new (key, &ids[0]), *two = ecfs_peer_identity_new (key, &ids[1]);
    EcfsPeerIdentity *stranger = ecfs_peer_identity_new (other_key, &ids[1]);
    g_assert_true (is_of (one, two) && is_of (two, one));
    g_assert_false (is_of (one, stranger) || is_of (stranger, one));
    g_assert_cmpint (EVP_PKEY_eq (one->key, two->key), ==, 0);
    ecfs_peer_identity_free (one);
    ecfs_peer_identity_free (two);
    ecfs_peer_identity_free (stranger);
    ecfs_peer_identity_free (NULL);
}

static SSL_SESSION *kept;

static int keep_session (SSL *ssl, SSL_SESSION *session)
{
    (void) ssl;
    SSL_SESSION_free (kept);
    kept = session;
    return 1;
}

/* A second connection costs a third of the first, as it shows no certificate again; the server knows it all the same.
 */
static void test_sessions_are_resumed (void)
{
    uint8_t key[ECFS_KEY_BYTES] = {1};
    EcfsUuid one = ecfs_uuid_new (), two = ecfs_uuid_new ();
    EcfsPeerIdentity *server = ecfs_peer_identity_new (key, &one), *client = ecfs_peer_identity_new (key, &two);
    SSL_CTX *serves = ecfs_peer_identity_serve (server);
    for (unsigned i = 0; i < 2; i++) {
        char byte;
        BIO *ours, *theirs;
        SSL_CTX *asks = SSL_CTX_new (TLS_client_method ());
        g_assert_true (ecfs_peer_identity_show (client, asks));
        (void) SSL_CTX_set_session_cache_mode (asks, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb (asks, keep_session);
        SSL *a = SSL_new (asks), *b = SSL_new (serves);
        g_assert_cmpint (BIO_new_bio_pair (&ours, 1 << 16, &theirs, 1 << 16), ==, 1);
        SSL_set_bio (a, ours, ours);
        SSL_set_bio (b, theirs, theirs);
        g_assert_true (kept == NULL || SSL_set_session (a, kept) == 1);
        (void) SSL_connect (a); /* each waits for the other in turn */
        (void) SSL_accept (b);
        g_assert_cmpint (SSL_connect (a), ==, 1);
        g_assert_cmpint (SSL_accept (b), ==, 1);
        g_assert_cmpint (SSL_read (a, &byte, 1), <=, 0); /* the session comes after the handshake */
        g_assert_cmpint (SSL_session_reused (b), ==, i);
        g_assert_nonnull (SSL_get0_peer_certificate (b));
        SSL_set_shutdown (a, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
        SSL_set_shutdown (b, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
        SSL_free (a);
        SSL_free (b);
        SSL_CTX_free (asks);
    }
    SSL_SESSION_free (kept);
    SSL_CTX_free (serves);
    ecfs_peer_identity_free (server);
    ecfs_peer_identity_free (client);
}

int main (int argc, char **argv)
{
    g_test_init (&argc, &argv, NULL);
    g_test_add_func ("/peer/nobody-waits-for-longer-than-may-be", test_nobody_waits_for_longer_than_may_be);
    g_test_add_func ("/peer/requests-come-back", test_requests_come_back);
    g_test_add_func ("/peer/what-is-no-request-is-refused", test_what_is_no_request_is_refused);
    g_test_add_func ("/peer/addresses-are-hosts-with-ports", test_addresses_are_hosts_with_ports);
    g_test_add_func ("/peer/one-of-many-fetches-and-each-gives-to-few", test_one_of_many_fetches_and_each_gives_to_few);
    g_test_add_func ("/peer/who-gives-nothing-is-off-the-list", test_who_gives_nothing_is_off_the_list);
    g_test_add_func ("/peer/a-claim-holds-for-one-and-an-offer-for-none",
                     test_a_claim_holds_for_one_and_an_offer_for_none);
    g_test_add_func ("/peer/those-who-only-hope-are-not-sent-to-each-other",
                     test_those_who_only_hope_are_not_sent_to_each_other);
    g_test_add_func ("/peer/lists-do-not-grow-for-ever", test_lists_do_not_grow_for_ever);
    g_test_add_func ("/peer/a-new-list-takes-the-place-of-the-oldest", test_a_new_list_takes_the_place_of_the_oldest);
    g_test_add_func ("/peer/who-has-the-key-is-known", test_who_has_the_key_is_known);
    g_test_add_func ("/peer/sessions-are-resumed", test_sessions_are_resumed);
    return g_test_run ();
}
