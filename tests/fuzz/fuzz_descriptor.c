/* Descriptor files of either form: refused, or whatever is taken makes sense. */
#include "verbs/descriptor_priv.h"

#include <string.h>

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

/* All its digests are there, and @text says the same. */
static void check_sealed (const EcfsDescriptor *first, const char *text)
{
    g_autoptr (EcfsDescriptor) second = ecfs_descriptor_parse (text, strlen (text), NULL);
    g_assert_nonnull (second);
    g_autofree char *again = ecfs_descriptor_format (second);
    g_assert_cmpstr (text, ==, again);
    for (guint i = 0; i < first->objects->len; i++) {
        const EcfsDescriptorObject *object = first->objects->pdata[i];
        g_assert_true ((object->units == NULL) == (object->row->seal.kind == ECFS_SEAL_NONE));
        if (object->units != NULL)
            g_assert_cmpuint (object->units->digests->len, ==,
                              ecfs_units_count (object->units) * ecfs_units_digest_bytes (object->units));
    }
}

static void take (const char *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    g_autoptr (EcfsDescriptor) first = ecfs_descriptor_parse (bytes, size, &error);
    if (first == NULL) {
        g_assert_cmpint (ecfs_errno (error), !=, 0);
        return;
    }
    g_assert_true (ecfs_descriptor_check (first, NULL));
    g_autofree char *text = ecfs_descriptor_format (first);
    if (ecfs_descriptor_is_sealed (first))
        check_sealed (first, text);
    g_autofree char *fec = ecfs_descriptor_format_fec (first, &error);
    g_assert_true (fec != NULL || ecfs_errno (error) == ENOTSUP);
}

/* As it is, and with the right digest at its end, which no fuzzer finds. */
int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    g_autofree char *text = g_strndup ((const char *) bytes, size);
    char *end = strstr (text, "\n[end]");
    take ((const char *) bytes, size);
    if (end == NULL)
        return 0;
    *end = '\0';
    g_autofree char *ended = ecfs_descriptor_end (text);
    take (ended, strlen (ended));
    return 0;
}
