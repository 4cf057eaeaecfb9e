#include "peer/identity.h"

#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <string.h>

#define SESSIONS_OF  "ecfs peers"
#define SESSIONS_MAX 1024 /* some KiB each */
#define FROM         "19700101000000Z"
#define UNTIL        "99991231235959Z" /* as the archive's key, whatever clocks say */

static bool name_it (X509_NAME *name, const char *text)
{
    return X509_NAME_add_entry_by_txt (name, "CN", MBSTRING_ASC, (const unsigned char *) text, -1, -1, 0) == 1;
}

static bool fill (X509 *certificate, const char *subject, const char *issuer, EVP_PKEY *key, EVP_PKEY *signer,
                  bool is_authority)
{
    uint64_t serial = 1;
    X509_EXTENSION *basic = X509V3_EXT_conf_nid (NULL, NULL, NID_basic_constraints,
                                                 is_authority ? "critical,CA:TRUE" : "critical,CA:FALSE");
    bool good = (is_authority || RAND_bytes ((unsigned char *) &serial, sizeof serial) == 1) && basic != NULL &&
                X509_set_version (certificate, 2) == 1 &&
                ASN1_INTEGER_set_uint64 (X509_get_serialNumber (certificate), serial >> 1 | 1) == 1 &&
                ASN1_TIME_set_string_X509 (X509_getm_notBefore (certificate), FROM) == 1 &&
                ASN1_TIME_set_string_X509 (X509_getm_notAfter (certificate), UNTIL) == 1 &&
                name_it (X509_get_subject_name (certificate), subject) &&
                name_it (X509_get_issuer_name (certificate), issuer) && X509_set_pubkey (certificate, key) == 1 &&
                X509_add_ext (certificate, basic, -1) == 1 && X509_sign (certificate, signer, NULL) > 0;
    X509_EXTENSION_free (basic);
    return good;
}

EcfsPeerIdentity *ecfs_peer_identity_new (const uint8_t key[ECFS_KEY_BYTES], const EcfsUuid *id)
{
    char name[ECFS_UUID_TEXT_SIZE];
    ecfs_uuid_text (id, name);
    EcfsPeerIdentity *self = g_new0 (EcfsPeerIdentity, 1);
    EVP_PKEY *signer = EVP_PKEY_new_raw_private_key (EVP_PKEY_ED25519, NULL, key, ECFS_KEY_BYTES);
    self->authority = X509_new ();
    self->certificate = X509_new ();
    self->key = EVP_PKEY_Q_keygen (NULL, NULL, "ED25519");
    bool good = signer != NULL && self->key != NULL &&
                fill (self->authority, "ecfs archive", "ecfs archive", signer, signer, true) &&
                fill (self->certificate, name, "ecfs archive", self->key, signer, false);
    EVP_PKEY_free (signer);
    if (good)
        return self;
    ecfs_peer_identity_free (self);
    return NULL;
}

void ecfs_peer_identity_free (EcfsPeerIdentity *self)
{
    if (self == NULL)
        return;
    X509_free (self->authority);
    X509_free (self->certificate);
    EVP_PKEY_free (self->key);
    g_free (self);
}

bool ecfs_peer_identity_show (const EcfsPeerIdentity *self, SSL_CTX *context)
{
    return SSL_CTX_use_certificate (context, self->certificate) == 1 &&
           SSL_CTX_use_PrivateKey (context, self->key) == 1 &&
           X509_STORE_add_cert (SSL_CTX_get_cert_store (context), self->authority) == 1;
}

SSL_CTX *ecfs_peer_identity_serve (const EcfsPeerIdentity *self)
{
    SSL_CTX *context = SSL_CTX_new (TLS_server_method ());
    if (context == NULL)
        return NULL;
    /* Who has shown a certificate opens more connections with a session of it, for a third of the processor time. */
    bool good =
        SSL_CTX_set_min_proto_version (context, TLS1_3_VERSION) == 1 && ecfs_peer_identity_show (self, context) &&
        SSL_CTX_set_num_tickets (context, 1) == 1 &&
        SSL_CTX_set_session_id_context (context, (const unsigned char *) SESSIONS_OF, strlen (SESSIONS_OF)) == 1;
    (void) SSL_CTX_set_options (context, SSL_OP_NO_TICKET); /* it stays here; like the next it returns what was set */
    (void) SSL_CTX_sess_set_cache_size (context, SESSIONS_MAX);
    SSL_CTX_set_verify (context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_verify_depth (context, 1);
    SSL_CTX_set_max_cert_list (context, 8192); /* of a stranger, too */
    (void) SSL_CTX_set_mode (context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE); /* sets bits */
    if (good)
        return context;
    SSL_CTX_free (context);
    return NULL;
}
