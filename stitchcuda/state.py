"""Defines the state that the graph's nodes share, and the records in it: settings, plan, task, attempt, evidence, review.

Records are small and frozen: sources, logs, captured graphs and profiles are stored in the workspace under their SHA-256, and
the state holds digests. This module imports nothing of ours and never touches a file.

Units: milliseconds (`_ms`), bytes, flops, seconds (`_s`) throughout. Digests are lower-case hexadecimal SHA-256.

Where to look next: `store/workspace.py` (what the digests name), `graph/routes.py` (decides by these records).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from typing_extensions import TypedDict  # pydantic needs this one for the state's schema before Python 3.12

Tier = Literal["measured", "timed", "simulated", "compiled"]
Route = Literal["code", "replan", "next_task", "done"]
Policy = Literal["stitched", "strict"]
Precision = Literal["reference", "tf32", "fp16", "bf16"]
Target = Literal["cuda", "sim"]
Status = Literal["running", "parked", "done", "nothing_to_do", "failed"]
Role = Literal["planner", "coder", "verifier"]
Stage = Literal["start", "model"]
Approval = Literal["plan", "code"]
Effort = Literal["low", "medium"]
Result = Literal["kept", "correct", "wrong", "not built"]
Digest = Annotated[str, "sha256"]


class Record(BaseModel):
    """A frozen record; unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class TensorSpec(Record):
    """Name, shape, dtype and strides of a tensor. `strides` are in elements; `dtype` is torch's name, such as `bfloat16`."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]

    @property
    def elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


class DeviceFacts(Record):
    """The device that a program is for, as plans, predictions and floors need it."""

    name: str                              # the driver's name, such as "NVIDIA H200"
    target: Target                         # where programs run in this session
    arch: str                              # nvcc's name, such as "sm_90a"
    sm_count: int
    bandwidth_gbs: float                   # device memory, read plus write, 1e9 bytes per second
    tflops: dict[str, float]               # dense matrix rate by dtype, 1e12 per second
    launch_us: float                       # host cost of one eager operator
    driver: str = ""
    torch: str = ""
    measured: bool = False                 # False: nominal figures
    note: str = ""                         # for a GPU in this machine: why figures are nominal, what was not measured

    @property
    def key(self) -> str:
        """Results are compared only if their keys are equal."""
        return f"{self.target}|{self.name}|{self.driver}|{self.torch}"


class Settings(Record):
    """What a session was asked to do."""

    model: str = "builtin"                 # builtin, PROVIDER:NAME, mailbox:DIR, react:PROVIDER:NAME
    roles: dict[Role, tuple[str, ...]] = {}  # other models for a role; a coder's candidates take turns with several
    options: dict[str, bool | int | float | str] = {}  # for the chat model, such as temperature
    base_url: str | None = None
    from_scratch: bool = False             # False: a chat model starts from the built-in engineer's verified program
    candidates: int = 1                    # drafts in each step
    effort: Effort = "medium"              # of the built-in engineer; "low": operators keep the form that the reference has
    approve: tuple[Approval, ...] = ()     # what a person has to approve
    target: Target = "sim"
    predict_for: str | None = None         # GPU whose nominal figures the simulator predicts with: "h200" (None), "a100", …
    goal: float | None = None              # stop once this speed-up is reached
    policy: Policy = "stitched"
    precision: Precision = "reference"
    budget_usd: float = 5.0
    max_tokens: int | None = None          # input and output of all calls together
    max_gpu_s: float | None = None
    max_attempts: int = 30                 # programs; those of the start stage are not counted
    max_minutes: float | None = None
    gpu_memory_gb: float | None = None     # of the GPU's memory, for the verifier and the programs that it runs; None: all
    time_baselines: bool = False           # the report also times a CUDA graph and torch.compile
    sanitize: bool = False                 # the report also has compute-sanitizer's findings
    seeds: int = 3                         # secret input sets per check
    final_seeds: int = 5                   # fresh secret input sets for the last verification


class Region(Record):
    """A connected part of the captured graph, or several equal ones (`instances`) that one kernel serves."""

    id: str                                # stable within one capture, such as "r03"
    title: str                             # for people: "residual add + layer_norm"
    kind: Literal["fusible", "library", "view", "opaque"]
    operators: tuple[str, ...]             # in execution order, such as "aten.layer_norm.default"
    nodes: tuple[tuple[str, ...], ...]     # node names of each instance, same order in each
    scopes: tuple[str, ...]                # module path of each instance, "" for the root
    inputs: tuple[TensorSpec, ...]         # of the first instance
    outputs: tuple[TensorSpec, ...]
    launches: int                          # eager kernel launches of all instances
    eager_bytes: int                       # device memory traffic of all instances when run operator by operator
    fused_bytes: int                       # the same when every tensor crosses the region's border once
    flops: int
    reason: str = ""                       # why a region cannot be written by the built-in engineer


class Structure(Record):
    """One of several ways to cut a task into kernels and library calls; they compete for it."""

    name: str                              # such as "two-kernels"
    strategy: str
    predicted_ms: float                    # saving on the target device


class Task(Record):
    """One step of a plan: regions to replace, a change of the host side, or another graph (`compiler/templates`), whose regions
    it names."""

    id: str                                # stable across replans: "r03", "host:cuda_graph", "graph:split_products"
    kind: Literal["region", "host", "graph", "open"]  # open: an agent chooses itself what to change
    title: str
    regions: tuple[str, ...] = ()          # Region.id of each region that it replaces; none for the host side
    predicted_ms: float = 0.0              # saving on the target device
    why: str = ""                          # the reason of the prediction, in one sentence
    strategy: str = ""                     # how it should be done
    structures: tuple[Structure, ...] = () # that compete for it; none: the strategy says it all

    def predicted_by(self, structure: str) -> float:
        """Returns the saving that is predicted of a structure; of the task for a draft that follows none of them."""
        return next((found.predicted_ms for found in self.structures if found.name == structure), self.predicted_ms)

    @model_serializer(mode="wrap")
    def _without_none(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leaves `structures` out where there are none, so that a plan of before has the digest that it had."""
        fields: dict[str, Any] = dump(self)
        if not fields.get("structures"):
            fields.pop("structures", None)
        return fields


class Plan(Record):
    """Ordered tasks, and the evidence that they were planned from."""

    version: int
    tasks: tuple[Task, ...]
    evidence: tuple[Digest, ...] = ()
    summary: str = ""
    host: str = ""                         # how the host side is to be run: streams, graphs, workspaces, layouts
    engineer: str = ""                     # who planned; "" in old records
    word: str = ""                         # a hash of what a person changed in it; "" if nothing was changed

    @property
    def claimed(self) -> bool:
        """Whether its tasks' savings are claims of a chat model. The built-in engineer's are the cost model's."""
        return self.engineer not in ("", "builtin")


class ProfileResult(Record):
    """A profiler's result, or why it did not run."""

    tool: Literal["nsys", "ncu"]
    source: Literal["", "nsys", "cupti", "events", "ncu"] = ""  # what really measured
    skipped: str = ""                      # why nothing was measured
    why: str = ""                          # why no better profiler was used, one sentence
    digest: Digest | None = None           # the full profile in the workspace
    bottleneck: str = ""
    lines: tuple[str, ...] = ()            # a few lines for models and people


class OutputError(Record):
    """The error of one output (or mutated buffer) against float64. Errors are absolute; a bound is the error allowed."""

    name: str
    max_error: float
    max_bound: float
    norm_error: float                      # Frobenius norm of the difference
    norm_bound: float
    bits: float | None = None              # of the significand that the error in norm leaves; None: whole numbers
    bits_of_reference: float | None = None # what the reference's own error leaves
    bits_allowed: float | None = None      # what an error at its bound would leave; None in old records
    ok: bool
    tolerance: float | None = None         # the least atol = rtol of torch.allclose that inputs as given need; no bound of ours
    note: str = ""                         # worst element, mismatching shape, NaN, ...


class Baseline(Record):
    """The reference before any task. Times are None where nothing was timed (simulator)."""

    capture: Digest                        # the captured graph as JSON
    regions: Digest                        # list of Region as JSON
    device: DeviceFacts
    eager_ms: float | None = None
    predicted_ms: float                    # eager time by bytes, flops and launches
    predicted_device_ms: float | None = None  # of that, the device's work; None in sessions of older versions
    floor_ms: float                        # speed of light: compulsory bytes and flops over the device's ceilings
    opaque: str = ""                       # why capture failed; "" if it did not
    system: ProfileResult | None = None    # where the reference's time goes
    convolutions: tuple[tuple[str, int], ...] = ()  # (module as in profiles, significand's bits), by the kernels that ran
    outputs: tuple[OutputError, ...] = ()  # bounds, and the reference's own errors, from the check of the first program


class KernelUsage(Record):
    """ptxas' resource report for one kernel."""

    name: str
    registers: int = 0
    shared_bytes: int = 0
    spill_bytes: int = 0
    stack_bytes: int = 0
    machine: str = ""                      # what the machine code does, in a line; "" if it was not read


class BuildResult(Record):
    """The result of a build. `log` is shortened for reading; `kernels` has the figures of ptxas."""

    ok: bool
    seconds: float = 0.0
    cached: bool = False
    log: str = ""                          # compiler errors with the source line, or empty
    kernels: tuple[KernelUsage, ...] = ()
    skipped: str = ""                      # why nothing was built here
    notes: tuple[str, ...] = ()            # what could not be found out about the kernels, and why
    code: str = ""                         # fingerprint of the sources without comments; "" if nothing was built


class KernelRole(Record):
    """Whether a kernel is needed, found out by leaving it out on fresh inputs."""

    name: str
    role: Literal["needed", "unused", "idle", "undecided"]  # unused: not launched; idle: same output without it
    note: str = ""


MOST_STEPS = 300
"""How many steps of a call are recorded."""


class CallStep(Record):
    """Something that one call of a program runs: a function of its own libraries, or an operator or kernel of others."""

    who: Literal["own", "vendor", "framework"]
    name: str                              # of the function or operator (simulator), of the kernel (GPU)
    tensors: str = ""                      # own: those that it is given; else those that it makes (simulator)
    line: str = ""                         # that called torch's operator, such as "model_new.py line 7" (simulator)
    times: int = 1                         # in a row
    amount: int                            # of all of these: bytes moved (simulator), ns of device time (GPU)
    each: tuple[int, ...] = ()             # the amount of each of several in a row; () in old records

    @property
    def took(self) -> tuple[float, ...]:
        """The amount of each, in order: their mean where only the sum was recorded."""
        return self.each or (self.amount / self.times,) * self.times


class CheckResult(Record):
    """Correctness on secret inputs, and shares of the work: own kernels, vendor libraries, framework."""

    ok: bool
    tier: Tier
    seeds: int = 0
    outputs: tuple[OutputError, ...] = ()  # the worst over all seeds, per output
    reasons: tuple[str, ...] = ()          # one sentence for each thing that is wrong
    caught: tuple[str, ...] = ()           # failures of its own kernels (builds, calls) that the program caught,
    not_simulated: tuple[str, ...] = ()    # and of these, what the simulator cannot run and a GPU may
    own_share: float = 0.0                 # shares of device time, or of bytes on the simulator
    vendor_share: float = 0.0
    framework_share: float = 0.0
    vendor_by_torch: float = 0.0           # part of the vendor's share that torch's operators launch, not own code
    label: str = ""                        # by the policy, if it is accepted: "small own share", "host-only" or ""
    elsewhere: int = 0                     # work outside of own kernels in one call: bytes on the simulator, ns on a GPU
    own_bytes: int = 0                     # bytes that own kernels moved in one call (simulator)
    boundary: int = 0                      # part of it: copies into and out of a replayed CUDA graph's memory (simulator)
    whole: int = 0                         # the reference's work in one call, in the same unit; 0: unknown
    significands: tuple[tuple[str, int], ...] = ()  # bits that the reference's products and convolutions carry, by operator
    replaced: float = 1.0                  # share of the reference's device time that own kernels took over (GPU)
    exchanged: float = 0.0                 # share of the removed work that other library kernels do now (GPU)
    host_bytes: int = 0                    # bytes of device memory that the host touched in one call (simulator)
    host_share: float = 0.0                # share of device time in copies to the host that the reference does not make (GPU)
    launches: int = 0                      # own kernel launches in one call
    deterministic: bool | None = None      # whether a repeated call is bitwise equal; None: not checked
    seconds: float = 0.0
    question_seconds: tuple[tuple[str, float], ...] = ()  # (question, seconds), in the order in which they were first asked
    notes: tuple[str, ...] = ()            # what was not checked, and why
    kernels: tuple[KernelRole, ...] = ()   # the program's own kernels, each left out in turn (last verification only)
    steps: tuple[CallStep, ...] = ()       # the first that a call ran, in order
    host_seen: tuple[str, ...] = ()        # host-side features that the program used, such as "cuda_graph"
    protections: tuple[str, ...] = ()      # protections that the sandbox enforced
    unprotected: tuple[str, ...] = ()      # "NAME: why this machine denies it"


class TimingResult(Record):
    """Interleaved timing on a GPU: medians of one call, with a cold L2 and the device synchronised."""

    reference_ms: float
    previous_ms: float                     # the program before this attempt, timed in the same rounds
    program_ms: float
    saving_ms: float                       # previous - program, median of paired blocks
    saving_low_ms: float                   # 95 % interval
    saving_high_ms: float
    samples: int
    ratio: float = 0.0                     # reference / program, median of paired blocks; 0: only the medians are known
    ratio_low: float = 0.0                 # 95 % interval
    ratio_high: float = 0.0
    certain_ratio: float = 0.0             # least `ratio_low` of two or three timings in new processes; 0: timed only once
    outside_ms: float | None = None        # the program's call by the judge's own clock
    deliveries: int = 0                    # timed calls whose outputs were compared
    interleaved: bool = True               # False: timed one after the other for lack of memory
    clock: str = "cuda events"
    refused: tuple[str, ...] = ()          # why these figures must not be believed, one sentence each
    disputed: bool = False                 # refused only because two clocks disagree
    notes: tuple[str, ...] = ()

    @property
    def speedup(self) -> float:
        return self.ratio or (self.reference_ms / self.program_ms if self.program_ms else 0.0)

    @property
    def faster_for_certain(self) -> bool:
        """Whether it was timed in several new processes and in each the whole 95 % interval of the ratio is above 1."""
        return not self.refused and self.certain_ratio > 1.0


class SanitizerResult(Record):
    """What compute-sanitizer found in one call of a session's final program."""

    clean: bool | None = None              # no errors or warnings by the program; None: a tool that ran failed
    tools: tuple[str, ...] = ()            # tools that ran
    errors: tuple[str, ...] = ()           # a sentence for each wrong use of memory or barriers
    warnings: tuple[str, ...] = ()         # a sentence for each race or uninitialised read, which may be intended
    notes: tuple[str, ...] = ()            # "TOOLS: what limits their findings"
    skipped: tuple[str, ...] = ()          # "TOOL: why" for each that did not run


class Evidence(Record):
    """The results of all tools for one attempt."""

    build: BuildResult
    check: CheckResult | None = None
    timing: TimingResult | None = None
    system: ProfileResult | None = None
    kernels: ProfileResult | None = None
    sanitizer: SanitizerResult | None = None  # last verification only
    tier: Tier | None = None               # how strong it is; None: not even built


class Review(Record):
    """The verifier's interpretation of the evidence. `route` is its proposal; in what is stored with an attempt, it is the
    route that `graph/routes.py` has decided."""

    bottleneck: str
    suggestion: str                        # "none" without one
    route: Route
    citations: tuple[str, ...] = ()
    expected_gain: str = ""
    defect: str = ""                       # a mistake in the code that the tools did not find; "" for none
    overruled: str = ""                    # the proposed route and the rule that forbade it; "" if it was followed
    skipped: str = ""                      # why no engineer was asked; "" if one was
    whole: bool = False                    # the whole program was reviewed, not the attempt's change alone
    settled: tuple[str, ...] = ()          # suggestions of earlier reviews, as its request listed them, that are closed now


class Usage(Record):
    """What a session has used."""

    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0                 # input tokens read from the provider's cache
    output_tokens: int = 0                 # thinking included
    usd: float | None = 0.0                # None: a model without a known price was used
    gpu_s: float = 0.0
    looks_gpu_s: float = 0.0               # part of it: coders' looks, as the transcript has them
    wall_s: float = 0.0

    def with_looks(self, looks_gpu_s: float) -> float:
        """Returns `gpu_s` if coders' looks have taken `looks_gpu_s` by now."""
        return self.gpu_s - self.looks_gpu_s + looks_gpu_s


class Call(Record):
    """One call of a chat model: a line of the transcript. Request and reply are stored in the workspace. A text that a tool
    answered is such a line too, without a model."""

    id: str                                # ROLE/ATTEMPT/ORDINAL@REQUEST, with "#N" for one that failed
    model: str                             # as asked for, such as "openai:NAME"
    request: Digest                        # the body, with its sampling settings
    reply: Digest | None                   # the answer, thinking text included; None: there was none
    outcome: str = ""                      # why there is no usable answer, one line; "" if there is one
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0                # None: the price is unknown
    estimated: bool = False                # tokens were counted here, since the server reported none
    seconds: float = 0.0
    gpu_s: float = 0.0                     # seconds on the GPU, of a coder's look
    created: str = ""                      # UTC, ISO 8601


class Attempt(Record):
    """One program and its results: a line of the ledger."""

    id: str                                # derived from (parent, task, ordinal)
    parent: str | None                     # the attempt that came before it in this session's history
    base: Digest | None                    # the program it started from
    task: str                              # Task.id
    plan_version: int
    ordinal: int                           # 0, 1, ... within the task
    program: Digest                        # manifest of the program's files
    evidence: Digest
    review: Digest
    tier: Tier | None
    built: bool
    correct: bool
    kept: bool                             # its program became the session's program
    route: Route
    route_reason: str
    predicted_ms: float                    # saving, by its structure or its task
    saving_ms: float | None = None         # measured
    speedup: float | None = None           # against eager; measured or timed tiers only
    own_share: float = 0.0
    fingerprint: str = ""                  # of the error; "" if correct
    diagnosis: str = ""                    # one line for people
    engineer: str = ""                     # who wrote it, such as "openai:NAME"
    note: str = ""                         # the coder's note, shortened
    program_ms: float | None = None        # measured time of a call
    code: str = ""                         # BuildResult.code
    structure: str = ""                    # Structure.name that it was asked to follow
    beside: bool = False                   # a candidate whose step went on with another one
    edited: bool = False                   # a person edited the draft before it was built
    defect: str = ""                       # a mistake that its review names although the tools found it correct
    unreviewed: str = ""                   # why the review that it should have had was not given; "" if none is missing

    @property
    def claimed(self) -> bool:
        """Whether `predicted_ms` is the claim of a chat model. The built-in engineer's is the cost model's."""
        return self.engineer not in ("", "builtin")

    @property
    def result(self) -> Result:
        return "not built" if not self.built else "wrong" if not self.correct else "kept" if self.kept else "correct"


class Work(Record):
    """The current attempt, filled in by one node after another."""

    id: str
    task: Task
    ordinal: int
    candidate: int = 0                     # 0, 1, ... within its step
    candidates: int = Field(default=1, validation_alias=AliasChoices("candidates", "of"))  # in its step; once named `of`
    structures: tuple[str, ...] = ()       # those that the first candidates of its step follow, in their order
    program: Digest | None = None
    engineer: str = ""                     # who wrote it
    note: str = ""                         # the coder's note
    edited: bool = False                   # a person edited the draft
    exhausted: str = ""                    # why the coder has nothing new to offer
    unusable: str = ""                     # why its replies could not be used
    unpaid: str = ""                       # which budget did not allow to call it
    twin: str = ""                         # an earlier attempt at this task that does the same, such as "#2"
    docs: Digest | None = None
    docs_beside: tuple[Digest | None, ...] = ()  # those of its step's other candidates
    lessons: Digest | None = None
    build: BuildResult | None = None
    check: CheckResult | None = None
    timing: TimingResult | None = None
    system: ProfileResult | None = None
    kernels: ProfileResult | None = None

    @property
    def structure(self) -> str:
        """The name of the structure that this candidate follows; "" if the coder chooses."""
        return self.structures[self.candidate] if self.candidate < len(self.structures) else ""


def lineage(head: str | None, known: Mapping[str, Attempt]) -> tuple[Attempt, ...]:
    """Returns the attempts up to `head`, oldest first, each the parent of the next. Raises KeyError for an unknown id."""
    walk: list[Attempt] = []
    while head is not None:
        walk.append(known[head])
        head = walk[-1].parent
    return tuple(reversed(walk))


def merge_drafts(before: tuple[Work, ...], more: tuple[Work, ...] | None) -> tuple[Work, ...]:
    """Merges drafts as the candidates' nodes return them: each id once, ordered by candidate; None clears them. Elements may be
    dicts where a checkpoint was not read back typed."""
    if more is None:
        return ()
    works = (work if isinstance(work, Work) else Work.model_validate(work) for work in (*before, *more))
    known = {work.id: work for work in works}
    return tuple(sorted(known.values(), key=lambda work: work.candidate))


class State(TypedDict, total=False):
    """The channels of the graph. A node that writes a value replaces it; only `drafts` are merged."""

    session: str
    reference: Digest                      # the reference's source in the workspace
    settings: Settings
    baseline: Baseline | None
    plan: Digest | None
    plans: tuple[Digest, ...]              # all versions, oldest first
    plan_version: int
    tasks_total: int
    tasks_done: tuple[str, ...]            # ids of tasks that are finished, kept or not
    tasks_kept: tuple[str, ...]
    task: int                              # position in the plan
    stage: Stage                           # start: the built-in engineer works, before the chat model goes on
    started: int                           # attempts of the start stage
    work: Work | None                      # the current attempt: the candidate that the step goes on with
    drafts: Annotated[tuple[Work, ...], merge_drafts]  # the step's drafts, until they are built
    beside: tuple[Work, ...]               # the step's other candidates, until the verdict
    unusable: int                          # consecutive steps without a usable reply
    halt: str | None                       # why the session ends now, whatever the rules say
    system: ProfileResult | None           # where the time of the program goes; None: not profiled
    counters: ProfileResult | None         # hardware counters of its kernels
    lessons: Digest | None                 # lessons of earlier sessions, for the next plan
    first: Digest                          # the program without own kernels
    program: Digest | None                 # the best verified program
    best: Attempt | None                   # the attempt behind it
    head: str | None                       # id of the latest attempt
    recent: tuple[Attempt, ...]            # the last four
    attempts: int
    route: Route | None
    missed: int                            # predictions missed by more than a factor of 2 since the last plan
    stop_reason: str | None
    final: Evidence | None                 # the last verification of the program, on fresh seeds
    baselines: Digest | None               # eager, CUDA graph and torch.compile times of the reference, on a GPU
    notes: tuple[str, ...]                 # sentences on what was skipped, dropped or replaced; the last twenty
    report: str | None                     # path relative to the workspace
    usage: Usage
