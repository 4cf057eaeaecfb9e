/* `rm`, `mv` and `mkdir` on the control socket: one request, one answer. */
#include "control/control_priv.h"

#include <string.h>

static char *path_of (JsonObject *request, const char *member, GError **error)
{
    const char *text = ecfs_control_text (request, member);
    char *path = text == NULL ? NULL : ecfs_control_unescape (text);
    if (path == NULL)
        (void) !ecfs_fail (error, EINVAL, "control socket: \"%s\" is missing or wrong", member);
    return path;
}

bool ecfs_control_names (const EcfsControlClient *client, JsonObject *request, GError **error)
{
    const EcfsNames names = {
        .archive = client->archive, .watch = &client->ops->names, .uid = client->peer.uid, .gid = client->peer.gid};
    const char *verb = ecfs_control_text (request, "verb");
    g_autofree char *path = path_of (request, "path", error);
    if (path == NULL)
        return false;
    if (strcmp (verb, "rm") == 0)
        return ecfs_names_remove (&names, path, ecfs_control_flag (request, "recursive"), error);
    if (strcmp (verb, "mkdir") == 0)
        return ecfs_names_make_directory (&names, path, (uint32_t) ecfs_control_number (request, "mode"),
                                          ecfs_control_flag (request, "parents"), error);
    g_autofree char *to = path_of (request, "to", error);
    return to != NULL && ecfs_names_move (&names, path, to, ecfs_control_flag (request, "keep"), error);
}
