#include "util/notify.h"

#include "util/io.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static const char *socket_name (void)
{
    const char *name = getenv ("NOTIFY_SOCKET");
    struct sockaddr_un address;
    return name != NULL && (name[0] == '/' || name[0] == '@') && strlen (name) < sizeof address.sun_path ? name : NULL;
}

bool ecfs_notify_wanted (void)
{
    return socket_name () != NULL;
}

void ecfs_notify (const char *state)
{
    const char *name = socket_name ();
    if (name == NULL)
        return;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = strlen (name);
    memcpy (address.sun_path, name, size);
    if (name[0] == '@') /* an abstract address: its length counts, and no NUL ends it */
        address.sun_path[0] = '\0';
    ecfs_autofd fd = socket (AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    socklen_t address_size = (socklen_t) (offsetof (struct sockaddr_un, sun_path) + size);
    if (fd < 0 ||
        sendto (fd, state, strlen (state), MSG_NOSIGNAL, (const struct sockaddr *) &address, address_size) < 0)
        g_info ("cannot tell the service manager at %s \"%s\": %s", name, state, g_strerror (errno));
}
