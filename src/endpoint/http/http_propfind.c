/*
 * Multistatus documents (RFC 4918).
 *
 * What counts of <response>: href, and of each <propstat> whose status is a good one the properties that we ask for.
 */
#include "endpoint/http/http_protocol.h"

#include "endpoint/web/xml.h"

#include <curl/curl.h>
#include <string.h>

#define MAX_TEXT       4096       /* of one href or property */
#define MAX_DOCUMENT   (1u << 30) /* bytes: of a directory with some two million files */
#define HTTP_FIRST_BAD 300

/* Where in the document we are. */
typedef enum Place {
    PLACE_OUTSIDE,
    PLACE_MULTISTATUS,
    PLACE_RESPONSE,
    PLACE_PROPSTAT,
    PLACE_PROP,
    PLACE_TYPE,  /* resourcetype */
    PLACE_TEXT,  /* an element whose text counts */
    PLACE_OTHER, /* whatever does not matter */
} Place;

typedef enum Property { PROPERTY_HREF, PROPERTY_STATUS, PROPERTY_SIZE, PROPERTY_MTIME, PROPERTY_AVAILABLE } Property;

struct EcfsDavParser {
    EcfsXml *xml;
    EcfsDavEach each;
    void *user;
    Place places[ECFS_XML_MAX_DEPTH];
    Property property;     /* in PLACE_TEXT */
    char *href;            /* of the response */
    unsigned status;       /* of the response or the propstat; 0: none was given */
    EcfsDavEntry entry;    /* of the response */
    EcfsDavEntry proposed; /* of the propstat */
};

/* What an element called @name means in @place. */
static Place enter (EcfsDavParser *self, Place place, const char *name)
{
    static const struct {
        Place in;
        const char *name;
        Place to;
        Property property;
    } known[] = {
        {PLACE_OUTSIDE, "multistatus", PLACE_MULTISTATUS, 0},
        {PLACE_MULTISTATUS, "response", PLACE_RESPONSE, 0},
        {PLACE_RESPONSE, "href", PLACE_TEXT, PROPERTY_HREF},
        {PLACE_RESPONSE, "status", PLACE_TEXT, PROPERTY_STATUS},
        {PLACE_RESPONSE, "propstat", PLACE_PROPSTAT, 0},
        {PLACE_PROPSTAT, "status", PLACE_TEXT, PROPERTY_STATUS},
        {PLACE_PROPSTAT, "prop", PLACE_PROP, 0},
        {PLACE_PROP, "getcontentlength", PLACE_TEXT, PROPERTY_SIZE},
        {PLACE_PROP, "getlastmodified", PLACE_TEXT, PROPERTY_MTIME},
        {PLACE_PROP, "quota-available-bytes", PLACE_TEXT, PROPERTY_AVAILABLE},
        {PLACE_PROP, "resourcetype", PLACE_TYPE, 0},
    };
    for (size_t i = 0; i < G_N_ELEMENTS (known); i++)
        if (known[i].in == place && strcmp (known[i].name, name) == 0) {
            self->property = known[i].property;
            return known[i].to;
        }
    if (place == PLACE_TYPE && strcmp (name, "collection") == 0)
        self->proposed.is_collection = true;
    return PLACE_OTHER;
}

static bool on_start (void *user, unsigned depth, const char *space, const char *name)
{
    EcfsDavParser *self = user;
    Place place = depth == 1 ? PLACE_OUTSIDE : self->places[depth - 2];
    Place entered = g_strcmp0 (space, "DAV:") == 0 ? enter (self, place, name) : PLACE_OTHER;
    self->places[depth - 1] = entered;
    if (place == PLACE_OUTSIDE && entered != PLACE_MULTISTATUS)
        ecfs_xml_refuse (self->xml, "is not a multistatus");
    if (entered == PLACE_RESPONSE) {
        g_clear_pointer (&self->href, g_free);
        self->entry = (EcfsDavEntry){.href = NULL};
        self->status = 0;
    }
    if (entered == PLACE_PROPSTAT) {
        self->proposed = (EcfsDavEntry){.href = NULL};
        self->status = 0;
    }
    return entered == PLACE_TEXT;
}

/* "HTTP/1.1 200 OK" */
static unsigned parse_status (const char *text)
{
    const char *space = strchr (text, ' ');
    return space == NULL ? 0 : (unsigned) g_ascii_strtoull (space, NULL, 10);
}

static bool parse_bytes (const char *text, uint64_t *ret_bytes)
{
    guint64 bytes;
    if (!g_ascii_string_to_unsigned (text, 10, 0, G_MAXINT64, &bytes, NULL))
        return false;
    *ret_bytes = bytes;
    return true;
}

static void take_text (EcfsDavParser *self, const char *text)
{
    switch (self->property) {
    case PROPERTY_HREF:
        if (self->href == NULL)
            self->href = g_strdup (text);
        break;
    case PROPERTY_STATUS:
        self->status = parse_status (text);
        break;
    case PROPERTY_SIZE:
        self->proposed.has_size = parse_bytes (text, &self->proposed.size);
        break;
    case PROPERTY_MTIME:
        self->proposed.mtime_s = MAX (curl_getdate (text, NULL), 0);
        break;
    case PROPERTY_AVAILABLE:
        self->proposed.has_available = parse_bytes (text, &self->proposed.available_bytes);
        break;
    }
}

static bool is_good (unsigned status)
{
    return status == 0 || (status >= 200 && status < HTTP_FIRST_BAD);
}

static void merge (EcfsDavParser *self)
{
    const EcfsDavEntry *from = &self->proposed;
    EcfsDavEntry *to = &self->entry;
    bool good = is_good (self->status);
    self->status = 0; /* what is told of the response itself comes apart */
    if (!good)
        return;
    to->is_collection |= from->is_collection;
    to->mtime_s = MAX (to->mtime_s, from->mtime_s);
    if (from->has_size) {
        to->has_size = true;
        to->size = from->size;
    }
    if (from->has_available) {
        to->has_available = true;
        to->available_bytes = from->available_bytes;
    }
}

static void on_end (void *user, unsigned depth, const char *name, const char *text)
{
    EcfsDavParser *self = user;
    Place left = self->places[depth - 1];
    (void) name;
    if (left == PLACE_TEXT)
        take_text (self, text);
    else if (left == PLACE_PROPSTAT)
        merge (self);
    else if (left == PLACE_RESPONSE && self->href != NULL && is_good (self->status)) {
        self->entry.href = self->href;
        self->each (self->user, &self->entry);
    }
}

EcfsDavParser *ecfs_dav_parser_new (EcfsDavEach each, void *user)
{
    static const EcfsXmlReader reader = {
        .what = "the answer to PROPFIND",
        .too_long = "has a property that is too long",
        .max_depth = ECFS_XML_MAX_DEPTH,
        .max_text = MAX_TEXT,
        .max_document = MAX_DOCUMENT,
        .start = on_start,
        .end = on_end,
    };
    EcfsDavParser *self = g_new0 (EcfsDavParser, 1);
    self->each = each;
    self->user = user;
    self->xml = ecfs_xml_new (&reader, self);
    return self;
}

bool ecfs_dav_parser_feed (EcfsDavParser *self, const void *bytes, size_t size, GError **error)
{
    return ecfs_xml_feed (self->xml, bytes, size, error);
}

bool ecfs_dav_parser_end (EcfsDavParser *self, GError **error)
{
    return ecfs_xml_end (self->xml, error);
}

void ecfs_dav_parser_free (EcfsDavParser *self)
{
    if (self == NULL)
        return;
    ecfs_xml_free (self->xml);
    g_free (self->href);
    g_free (self);
}
