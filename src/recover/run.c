/* What all parts of a recovery do: saying how far it is, and reading files of endpoints. */
#include "catalog/journal_file.h"
#include "recover/recover_priv.h"
#include "util/text.h"

#include <inttypes.h>
#include <stdarg.h>

#define FILE_MAX ((uint64_t) 2 * ECFS_JOURNAL_FILE_MAX + 4096)

void ecfs_recover_say (const EcfsRecovering *self, const char *text)
{
    if (self->what->tell != NULL)
        self->what->tell (self->what->user, text);
    else
        g_info ("%s", text);
}

void ecfs_recover_tell (EcfsRecovering *self, const char *format, ...)
{
    va_list arguments;
    va_start (arguments, format);
    char *text = g_strdup_vprintf (format, arguments);
    va_end (arguments);
    if (self->pending != NULL) {
        g_ptr_array_add (self->pending, text);
        return;
    }
    ecfs_recover_say (self, text);
    g_free (text);
}

char *ecfs_recover_directory_word (const EcfsRecovering *self)
{
    return ecfs_shell_word (self->what->shown != NULL ? self->what->shown : self->what->directory);
}

bool ecfs_recover_tick (EcfsRecovering *self, const char *phase, uint64_t n_done, uint64_t n_all, GError **error)
{
    return self->what->tick == NULL || self->what->tick (self->what->user, phase, n_done, n_all) ||
           ecfs_fail (error, ECANCELED, "cancelled");
}

GByteArray *ecfs_recover_read (EcfsRecoverPlace *place, const char *name, uint64_t size, GError **error)
{
    if (size == 0 || size > FILE_MAX) {
        (void) !ecfs_fail (error, EBADMSG, "it has %" PRIu64 " bytes", size);
        return NULL;
    }
    g_autoptr (GByteArray) bytes = g_byte_array_sized_new ((guint) size);
    g_byte_array_set_size (bytes, (guint) size);
    const EcfsRange range = {.size = size, .to = bytes->data};
    return ecfs_endpoint_read_wait (place->endpoint, name, &range, 1, error) ? g_steal_pointer (&bytes) : NULL;
}
