/* The file ARCHIVE/month: refused with EBADMSG, or figures that come back from what is written for them, with more
 * added. */
#include "archive/month_text.h"
#include "util/error.h"

#include <stdint.h>

#define MONTH "2026-11"
#define OTHER "33333333-3333-3333-3333-333333333333" /* is in no seed */

static const char *const uuids[] = {"11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222",
                                    OTHER};

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size);

static void use_of (GKeyFile *file, const char *uuid, EcfsMonthUse *ret_use)
{
    g_autoptr (GError) error = NULL;
    bool read = ecfs_month_file_use (file, uuid, ret_use, &error);
    g_assert_no_error (error);
    g_assert_true (read && ret_use->requests <= INT64_MAX && ret_use->egress_bytes <= INT64_MAX);
}

int LLVMFuzzerTestOneInput (const uint8_t *bytes, size_t size)
{
    g_autoptr (GError) error = NULL;
    EcfsMonthUse uses[G_N_ELEMENTS (uuids)];
    g_autoptr (GKeyFile) file = ecfs_month_file_parse ((const char *) bytes, size, MONTH, &error);
    for (size_t i = 0; file != NULL && i < G_N_ELEMENTS (uuids); i++) {
        if (!ecfs_month_file_use (file, uuids[i], &uses[i], &error))
            break;
        uses[i].requests = MIN (uses[i].requests, INT64_MAX - 5) + 5;
        ecfs_month_file_put (file, uuids[i], &uses[i]);
    }
    if (error != NULL) {
        g_assert_error (error, ECFS_ERROR, EBADMSG);
        return 0;
    }
    gsize text_size = 0;
    g_autofree char *text = g_key_file_to_data (file, &text_size, NULL);
    g_autoptr (GKeyFile) again = ecfs_month_file_parse (text, text_size, MONTH, &error);
    g_assert_no_error (error);
    for (size_t i = 0; i < G_N_ELEMENTS (uuids); i++) {
        EcfsMonthUse back;
        use_of (again, uuids[i], &back);
        g_assert_cmpuint (back.requests, ==, uses[i].requests);
        g_assert_cmpuint (back.egress_bytes, ==, uses[i].egress_bytes);
    }
    return 0;
}
