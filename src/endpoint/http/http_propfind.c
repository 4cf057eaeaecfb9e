/*
 * Multistatus documents (RFC 4918), read by libxml2 as a stream of events.
 *
 * What counts of <response>: href, and of each <propstat> whose status is a good one the properties that we ask for. A
 * document type is refused, so there are no entities but XML's own five, and nothing outside is ever looked at.
 */
#include "endpoint/http/http_protocol.h"

#include <curl/curl.h>
#include <libxml/parser.h>
#include <string.h>

#define MAX_DEPTH      32
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
    xmlParserCtxtPtr context;
    EcfsDavEach each;
    void *user;
    Place places[MAX_DEPTH];
    unsigned depth;
    Property property;     /* in PLACE_TEXT */
    GString *text;         /* of it */
    char *href;            /* of the response */
    unsigned status;       /* of the response or the propstat; 0: none was given */
    EcfsDavEntry entry;    /* of the response */
    EcfsDavEntry proposed; /* of the propstat */
    size_t n_bytes;
    bool complete; /* the outermost element has ended */
    const char *wrong;
};

static void stop (EcfsDavParser *self, const char *wrong)
{
    if (self->wrong == NULL)
        self->wrong = wrong;
    xmlStopParser (self->context);
}

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

static void on_start (void *user, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri, int n_namespaces,
                      const xmlChar **namespaces, int n_attributes, int n_defaulted, const xmlChar **attributes)
{
    EcfsDavParser *self = user;
    (void) prefix, (void) n_namespaces, (void) namespaces, (void) n_attributes, (void) n_defaulted, (void) attributes;
    if (self->depth == MAX_DEPTH) {
        stop (self, "is nested too deeply");
        return;
    }
    Place place = self->depth == 0 ? PLACE_OUTSIDE : self->places[self->depth - 1];
    bool dav = uri != NULL && strcmp ((const char *) uri, "DAV:") == 0;
    Place entered = dav ? enter (self, place, (const char *) name) : PLACE_OTHER;
    self->places[self->depth++] = entered;
    if (place == PLACE_OUTSIDE && entered != PLACE_MULTISTATUS)
        stop (self, "is not a multistatus");
    if (entered == PLACE_TEXT)
        g_string_truncate (self->text, 0);
    if (entered == PLACE_RESPONSE) {
        g_clear_pointer (&self->href, g_free);
        self->entry = (EcfsDavEntry){.href = NULL};
        self->status = 0;
    }
    if (entered == PLACE_PROPSTAT) {
        self->proposed = (EcfsDavEntry){.href = NULL};
        self->status = 0;
    }
}

static void on_characters (void *user, const xmlChar *text, int size)
{
    EcfsDavParser *self = user;
    if (self->depth == 0 || self->places[self->depth - 1] != PLACE_TEXT)
        return;
    if (self->text->len + (size_t) size > MAX_TEXT)
        stop (self, "has a property that is too long");
    else
        g_string_append_len (self->text, (const char *) text, size);
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

static void take_text (EcfsDavParser *self)
{
    char *text = g_strstrip (self->text->str);
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

static void on_end (void *user, const xmlChar *name, const xmlChar *prefix, const xmlChar *uri)
{
    EcfsDavParser *self = user;
    (void) name, (void) prefix, (void) uri;
    if (self->depth == 0)
        return;
    Place left = self->places[--self->depth];
    if (left == PLACE_TEXT)
        take_text (self);
    else if (left == PLACE_PROPSTAT)
        merge (self);
    else if (left == PLACE_RESPONSE && self->href != NULL && is_good (self->status)) {
        self->entry.href = self->href;
        self->each (self->user, &self->entry);
    } else if (left == PLACE_MULTISTATUS) {
        self->complete = true;
    }
}

static void on_document_type (void *user, const xmlChar *name, const xmlChar *external, const xmlChar *system)
{
    (void) name, (void) external, (void) system;
    stop (user, "has a document type");
}

/* Errors are told by what feed and end return. */
static void on_problem (void *user, const xmlError *problem)
{
    (void) user, (void) problem;
}

EcfsDavParser *ecfs_dav_parser_new (EcfsDavEach each, void *user)
{
    static const xmlSAXHandler handler = {
        .initialized = XML_SAX2_MAGIC,
        .internalSubset = on_document_type,
        .startElementNs = on_start,
        .endElementNs = on_end,
        .characters = on_characters,
        .cdataBlock = on_characters,
        .serror = (xmlStructuredErrorFunc) on_problem,
    };
    EcfsDavParser *self = g_new0 (EcfsDavParser, 1);
    xmlSAXHandler copy = handler; /* libxml2 copies it again */
    self->each = each;
    self->user = user;
    self->text = g_string_new (NULL);
    self->context = xmlCreatePushParserCtxt (&copy, self, NULL, 0, NULL);
    if (self->context == NULL)
        g_error ("out of memory");
    (void) xmlCtxtUseOptions (self->context, XML_PARSE_NONET);
    return self;
}

static bool feed (EcfsDavParser *self, const void *bytes, size_t size, bool last, GError **error)
{
    self->n_bytes += size;
    if (self->n_bytes > MAX_DOCUMENT)
        return ecfs_fail (error, EPROTO, "the answer to PROPFIND is too long");
    /* What it returns counts warnings too, such as of "DAV:", which is no URI to its taste. */
    (void) xmlParseChunk (self->context, bytes, (int) size, last);
    if (self->wrong != NULL)
        return ecfs_fail (error, EPROTO, "the answer to PROPFIND %s", self->wrong);
    if (!self->context->wellFormed || (last && !self->complete))
        return ecfs_fail (error, EPROTO, "the answer to PROPFIND is not a complete XML document");
    return true;
}

bool ecfs_dav_parser_feed (EcfsDavParser *self, const void *bytes, size_t size, GError **error)
{
    return feed (self, bytes, size, false, error);
}

bool ecfs_dav_parser_end (EcfsDavParser *self, GError **error)
{
    return feed (self, NULL, 0, true, error);
}

void ecfs_dav_parser_free (EcfsDavParser *self)
{
    if (self == NULL)
        return;
    xmlFreeParserCtxt (self->context);
    g_string_free (self->text, TRUE);
    g_free (self->href);
    g_free (self);
}
