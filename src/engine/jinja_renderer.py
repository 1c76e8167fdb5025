"""Renders one chat template for each line of JSON on stdin; answers a line of JSON. Ends with stdin."""
import datetime
import json
import resource
import signal
import sys

resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

OUTPUT_MAX = 64 << 20
# Whoever started this process kills it much sooner; this is for when that one is gone.
SECONDS_MAX = 60


def answer(**fields):
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    answer(missing="jinja2")
    sys.exit(1)


class GenerationBlock(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %} marks what a model learns in training; here it is its content."""

    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", GenerationBlock])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
template = None

for line in sys.stdin:
    signal.alarm(SECONDS_MAX)
    try:
        call = json.loads(line)
        if "source" in call:
            template = environment.from_string(call["source"])
            answer(text="")
            signal.alarm(0)
            continue
        size, pieces = 0, []
        for piece in template.generate(messages=call["messages"], add_generation_prompt=call["generation"],
                                       bos_token=call["bos"], eos_token=call["eos"], tools=None, documents=None):
            size += len(piece)
            if size > OUTPUT_MAX:
                raise jinja2.exceptions.TemplateError("the rendered prompt is larger than %d characters" % OUTPUT_MAX)
            pieces.append(piece)
        answer(text="".join(pieces))
    except jinja2.exceptions.TemplateError as error:
        answer(error=(str(error) or type(error).__name__).splitlines()[0])
    except Exception as error:  # what a template does to its values: TypeError, MemoryError, RecursionError, ...
        answer(error="%s: %s" % (type(error).__name__, (str(error) or "no detail").splitlines()[0]))
    signal.alarm(0)
