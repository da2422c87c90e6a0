"""The reward service answers each job once, whatever happens to verifiers, servers and clients, and gives no score for what is
no program's fault."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import math
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reward_service import Job, Server, free_port, run
from stitchcuda.errors import BadInput, NotJudged, Unavailable, UnusableReference
from stitchcuda.training.reward_service.app import openapi
from stitchcuda.training.reward_service.client import RewardClient, RewardRefused
from stitchcuda.training.reward_service.job_store import JobStore
from stitchcuda.training.reward_service.jobs import TRIES, RewardJobs
from stitchcuda.training.reward_service.known_rewards import REWARDS, GivenReward
from stitchcuda.training.reward_service.metrics import Metrics
from stitchcuda.training.reward_service.records import JobAnswer, JobRequest
from stitchcuda.training.reward_service.serve import serve
from stitchcuda.training.reward_service.tasks import read_tasks
from stitchcuda.training.reward_service.trainers import compute_score, trl_reward
from stitchcuda.verify.api import Verdict
from tests.training.reward_server import GOOD, TASK, End, ScriptedPool, Served, program, serving
from tests.verify import programs

DIGEST = hashlib.sha256(TASK.encode()).hexdigest()[:24]  # by which the store names a reference
LOST = Unavailable("the judge was killed (SIGKILL) while judging a program; run the command again")


def refused(reason: str, within: bool | None = None) -> Verdict:
    return Verdict(accepted=False, tier="simulated", reasons=(reason,), within_bound=within)


BUILD = refused("the program's kernels do not build:\nx.cu:1: error")
WRONG = refused("output 0 is wrong: 3 of 9 elements differ", False)
KILLED = refused("the program crashed with SIGKILL while running")
SCRIPT: dict[str, list[End]] = {
    "build": [BUILD], "run": [refused("the program raised ValueError (program.py line 3)")], "wrong": [WRONG],
    "refused": [refused("policy stitched: own kernels hold 0.0% of the work", True)],
    "not_judged": [NotJudged("the simulator cannot run this program; a GPU can judge it")],
    "task": [UnusableReference(f"{DIGEST}.py is not valid Python in line 3")],
    "unavailable": [LOST], "passing": [BadInput("The reference took too long")], "defect": [RuntimeError("the judge failed")],
    "lost once": [LOST, GOOD], "lost twice": [LOST, RuntimeError("x"), WRONG],
    "killed once": [KILLED, GOOD], "always killed": [KILLED],
}  # fmt: skip


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, ScriptedPool(SCRIPT)) as made:
        yield made


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("rewards"), ScriptedPool(SCRIPT)) as made:
        yield made


@pytest.mark.parametrize(
    ("name", "state", "kind", "reward", "tries"),
    [
        ("good", "ok", "", 1.0, 0), ("build", "candidate_error", "build", 0.0, 0), ("run", "candidate_error", "run", 0.0, 0),
        ("wrong", "candidate_error", "wrong", 0.0, 0), ("refused", "candidate_error", "refused", 0.0, 0),
        ("not_judged", "candidate_error", "not_judged", None, 0), ("task", "infra_error", "task", None, 0),
        ("unavailable", "infra_error", "unavailable", None, TRIES - 1),
        ("passing", "infra_error", "unavailable", None, TRIES - 1),
        ("defect", "infra_error", "unavailable", None, TRIES - 1),
        ("lost once", "ok", "", 1.0, 1), ("lost twice", "candidate_error", "wrong", 0.0, 2),
        ("killed once", "ok", "", 1.0, 1), ("always killed", "candidate_error", "run", 0.0, TRIES - 1),
    ],
)  # fmt: skip
def test_each_end_of_a_program_has_its_state(
    shared: Served, name: str, state: str, kind: str, reward: float | None, tries: int
) -> None:
    answer = shared.client.judge("relu", program(name))
    assert (answer["state"], answer["kind"], answer["reward"], answer["tries"]) == (state, kind, reward, tries)
    assert shared.pool.judged.count(name) == tries + 1
    assert (answer["verdict"] is None) == (state == "infra_error")
    assert (answer["compiled"], answer["correct"]) == {
        "": (True, True), "build": (False, None), "run": (True, None), "wrong": (True, False), "refused": (True, True),
        "not_judged": (None, None), "task": (None, None), "unavailable": (None, None),
    }[kind]  # fmt: skip
    assert bool(answer["reasons"]) == (state != "ok")
    if name == "task":
        assert answer["reasons"] == ["the reference is not valid Python in line 3"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("", "defines no class ModelNew"), ("\0\1\2", "no text"), ("class ModelNew: '\ud800'", "no text"),
        ({}, "is no program"),
        ({"../model_new.py": "class ModelNew: ..."}, "names are relative"), ({"/model_new.py": ""}, "names are relative"),
        ({"model_new.py": "class ModelNew: ...", "a": "", "a/b": ""}, "both a file and a folder"),
        ({f"k{number}.cu": "" for number in range(300)}, "over 200 files"), ("#" * 9_000_000, "8 MiB"),
        ({"half\ud800": "", "model_new.py": "class ModelNew: ..."}, "names are relative"),
    ],
)  # fmt: skip
def test_what_is_no_program_gets_the_score_of_a_failure(shared: Served, given: str | dict[str, str], why: str) -> None:
    answer = shared.client.judge("relu", given)
    assert (answer["state"], answer["kind"], answer["reward"]) == ("candidate_error", "no_program", 0.0)
    assert why in answer["reasons"][0]
    assert not list((shared.service.store.folder / "work").iterdir())
    assert str(shared.service.store.folder) not in answer["reasons"][0]


def test_a_program_of_a_megabyte_is_judged(shared: Served) -> None:
    assert shared.client.judge("relu", program("good") + "#" * 1_000_000)["state"] == "ok"


@pytest.mark.parametrize(
    ("code", "body", "why"),
    [
        (400, b"", "no JSON"), (400, b"\xff\xfe{", "no JSON"), (400, b"[]", "valid dictionary"),
        (400, {}, "task: Field required"),
        (400, {"task": "relu", "program": 3, "schema": "accepted/1"}, "program"),
        (400, {"task": "relu", "program": "", "schema": "accepted/9"}, "there is no reward 'accepted/9': there are accepted/1"),
        (400, {"task": "relu", "program": "", "schema": "accepted/1", "more": 1}, "more: Extra inputs"),
        (400, {"task": "relu", "program": "", "schema": "accepted/1", "idempotency_key": "a b"}, "idempotency_key"),
        (404, {"task": "nothing", "program": "", "schema": "accepted/1"}, "there is no task 'nothing'"),
        (403, {"task": TASK, "program": "", "schema": "accepted/1"}, "a server without a token takes only its own tasks"),
        (413, b" " * (17 * 2**20), "at most 16 MiB"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_meant_gets_a_sentence(shared: Served, code: int, body: object, why: str) -> None:
    before = len(shared.pool.judged)
    found, said = shared.ask("/jobs", body)
    assert found == code
    assert why in said["error"]
    assert len(shared.pool.judged) == before


def test_other_addresses_and_forms(server: Served) -> None:
    assert server.ask("/jobs/none")[0] == 404
    assert server.ask("/jobs/none?wait=soon")[0] == 400
    assert server.ask("/jobs", b"{}", **{"Content-Type": "text/plain"})[0] == 415
    assert server.ask("/healthz", Host="elsewhere.example")[0] == 400
    with pytest.raises(RewardRefused, match="there is no task"):
        server.client.judge("nothing", program("good"))


def test_duplicates_are_judged_once(tmp_path: Path) -> None:
    with serving(tmp_path, ScriptedPool(SCRIPT, held=True)) as server, ThreadPoolExecutor(16) as threads:
        asked = [threads.submit(server.client.judge, "relu", program("good")) for _ in range(16)]
        while not server.pool.waiting:
            time.sleep(0.01)
        server.pool.release()
        assert len({str(answer.result()) for answer in asked}) == 1
        assert server.pool.judged == ["good"]
        assert "stitchcuda_reward_duplicates_total 15" in server.ask("/metrics")[1]


def test_a_key_stands_for_one_request(server: Served) -> None:
    first = server.client.judge("relu", program("unavailable"), key="k1")
    assert server.client.judge("relu", program("unavailable"), key="k1") == first
    assert len(server.pool.judged) == TRIES
    again = server.client.judge("relu", program("unavailable"), key="k2")
    assert again["id"] != first["id"]      # what failed for no fault of its own may be asked anew
    with pytest.raises(RewardRefused, match="another task, program or schema"):
        server.client.judge("relu", program("good"), key="k1")


def test_jobs_outlive_the_server(tmp_path: Path) -> None:
    requests = {name: {"task": "relu", "program": program(name), "schema": "accepted/1", "idempotency_key": name}
                for name in ("good", "wrong", "build", "other", "more")}  # fmt: skip
    with serving(tmp_path, ScriptedPool(SCRIPT, held=True, at_once=2)) as server:
        before = {name: server.ask("/jobs", request)[1]["id"] for name, request in requests.items()}
        while len(server.pool.waiting) < 2:
            time.sleep(0.01)
    with serving(tmp_path, ScriptedPool(SCRIPT)) as server:  # it begins with jobs of its store
        after = {name: server.ask("/jobs", request)[1]["id"] for name, request in requests.items()}
        answers = {name: server.client.judge("relu", program(name), key=name) for name in requests}
        assert before == after == {name: answer["id"] for name, answer in answers.items()}
        assert sorted(server.pool.judged) == sorted(requests)
    with serving(tmp_path, ScriptedPool()) as server:
        assert {name: server.client.judge("relu", program(name)) for name in requests} == answers
        assert server.pool.judged == []


def test_an_answer_is_given_when_it_is_there(tmp_path: Path) -> None:
    with serving(tmp_path, ScriptedPool(held=True)) as server:
        code, job = server.ask("/jobs", {"task": "relu", "program": program("good"), "schema": "accepted/1"})
        assert (code, job["state"]) == (202, "queued")
        started = time.monotonic()
        assert server.ask(f"/jobs/{job['id']}?wait=0.3")[1]["state"] == "running"
        assert 0.3 <= time.monotonic() - started < 5
        threading.Timer(0.3, server.pool.release).start()
        assert server.ask(f"/jobs/{job['id']}?wait=20")[1]["state"] == "ok"
        assert time.monotonic() - started < 10
        assert server.service._waiting == {}


def test_a_full_queue_turns_away_and_clients_come_again(tmp_path: Path) -> None:
    def request(number: int) -> dict[str, str]:
        return {"task": "relu", "program": program(str(number)), "schema": "accepted/1"}

    with serving(tmp_path, ScriptedPool(held=True, at_once=1), most_waiting=3) as server:
        server.ask("/jobs", request(0))
        while not server.pool.waiting:
            time.sleep(0.01)
        assert [server.ask("/jobs", request(number))[0] for number in range(1, 6)] == [202, 202, 202, 429, 429]
        assert server.ask("/jobs", request(2))[0] == 202  # a duplicate needs no room
        assert "3 jobs wait" in server.ask("/jobs", request(9))[1]["error"]
        with ThreadPoolExecutor(1) as threads:
            late = threads.submit(server.client.judge, "relu", program("late"))
            time.sleep(0.2)
            server.pool.held = False
            server.pool.release()
            assert late.result()["state"] == "ok"


@pytest.mark.more
def test_a_thousand_jobs_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, ScriptedPool()) as server, ThreadPoolExecutor(1000) as threads:
        client = RewardClient(server.url, patience_s=60.0)
        answers = list(threads.map(lambda number: client.judge("relu", program(str(number))), range(1000)))
        assert len({answer["id"] for answer in answers}) == 1000
        assert {answer["state"] for answer in answers} == {"ok"}
        assert len(server.pool.judged) == 1000


def test_a_token_is_needed_where_there_is_one(tmp_path: Path) -> None:
    request = {"task": TASK, "program": program("good"), "schema": "accepted/1"}
    with serving(tmp_path, ScriptedPool(), token="right") as server:
        for token in ("wrong", "right ", "righ"):
            assert server.ask("/jobs", request, token=token)[0] == 401
            assert server.ask("/metrics", token=token)[0] == 401
        assert server.ask("/healthz", token="wrong")[0] == server.ask("/openapi.json", token="wrong")[0] == 200
        assert server.client.judge(TASK, program("good"))["task"] == "(given)"
        with pytest.raises(RewardRefused, match="send the server's token"):
            RewardClient(server.url).judge("relu", program("good"))


def test_a_store_has_one_server(tmp_path: Path) -> None:
    with serving(tmp_path, ScriptedPool()), pytest.raises(Unavailable, match="another reward service uses"):
        JobStore(tmp_path, "scripted")
    (tmp_path / "jobs.sqlite").write_bytes(b"no data base" * 100)
    for extra in ("-wal", "-shm"):
        (tmp_path / f"jobs.sqlite{extra}").unlink(missing_ok=True)
    with pytest.raises(BadInput, match="cannot be used"):
        JobStore(tmp_path, "scripted")


def test_jobs_whose_reference_is_loaded_go_first_for_a_while(tmp_path: Path) -> None:
    store = JobStore(tmp_path, "scripted")
    for number, source in enumerate("ab" + 20 * "a"):
        store.add(JobRequest.model_validate({"task": "t", "program": str(number), "schema": "accepted/1"}), "t", source)
    first = store.claim(())
    assert first is not None
    claimed = [job.program for _ in range(21) if (job := store.claim((first.reference.stem,)))]
    assert first.program == "0"
    assert claimed == [*map(str, range(2, 18)), "1", *map(str, range(18, 22))]
    assert store.claim(()) is None
    store.close()


def test_metrics_say_what_happened(server: Served) -> None:
    for name in ("good", "wrong", "lost once"):
        server.client.judge("relu", program(name))
    text = server.ask("/metrics")[1]
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['stitchcuda_reward_finished_jobs_total{state="ok",kind=""}'] == "2"
    assert lines['stitchcuda_reward_finished_jobs_total{state="candidate_error",kind="wrong"}'] == "1"
    assert lines["stitchcuda_reward_retries_total"] == "1"
    assert lines['stitchcuda_reward_job_seconds_count{part="queued"}'] == "3"
    assert lines['stitchcuda_reward_unfinished_jobs{state="queued"}'] == "0"
    assert text.endswith("\n")


def test_the_schema_describes_what_is_sent(server: Served) -> None:
    schema = server.ask("/openapi.json")[1]
    assert schema == openapi()
    answer = server.client.judge("relu", program("wrong"))
    assert set(answer) == set(schema["components"]["schemas"]["JobAnswer"]["properties"])
    assert JobAnswer.model_validate(answer).kind == "wrong"
    assert set(schema["components"]["schemas"]["JobRequest"]["required"]) == {"task", "program", "schema"}
    named = {text.rpartition("/")[2] for text in _texts(schema) if text.startswith("#/components/schemas/")}
    assert named <= set(schema["components"]["schemas"])


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)


def test_a_reward_may_say_why_there_is_none(tmp_path: Path) -> None:
    given = GivenReward(value=None, no_score="no baselines were timed", parts={"speed-up over eager": 2.0})
    with serving(tmp_path, ScriptedPool(), rewards={"accepted/1": lambda verdict: given}) as server:
        answer = server.client.judge("relu", program("good"))
    assert (answer["state"], answer["reward"], answer["no_score"]) == ("ok", None, given.no_score)
    assert answer["reward_parts"] == given.parts


def test_a_reward_that_is_gone_is_no_score(tmp_path: Path) -> None:
    with serving(tmp_path, ScriptedPool(held=True)) as server:
        job = server.ask("/jobs", {"task": "relu", "program": program("good"), "schema": "accepted/1"})[1]
    with serving(tmp_path, ScriptedPool(), rewards={}) as server:
        answer = server.ask(f"/jobs/{job['id']}?wait=20")[1]
    assert (answer["state"], answer["reward"], answer["verdict"]["accepted"]) == ("infra_error", None, True)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_no_score(tmp_path: Path, value: float) -> None:
    with serving(tmp_path, ScriptedPool(), rewards={"accepted/1": lambda verdict: GivenReward(value=value)}) as server:
        answer = server.client.judge("relu", program("good"))
    assert (answer["state"], answer["reward"]) == ("infra_error", None)
    assert "no finite number" in answer["reasons"][0]


def test_a_store_that_cannot_be_written_ends_the_service(tmp_path: Path) -> None:
    store = JobStore(tmp_path, "scripted")
    jobs = RewardJobs(store, ScriptedPool(), REWARDS, "sim", Metrics())
    ended = threading.Event()
    jobs.failed = ended.set
    store._jobs.close()
    jobs.start()
    assert ended.wait(5)
    assert "closed database" in str(jobs.failure)
    jobs.close()


def test_trl_gets_none_where_there_is_no_score(server: Served) -> None:
    logged: dict[str, list[object]] = {}
    reward = trl_reward(server.url)
    texts = [f"I think.\n```python\n{program(name)}```\n" for name in ("good", "wrong", "unavailable", "not_judged")]
    found = asyncio.run(reward(
        [[{"role": "assistant", "content": text}] for text in texts], task=["relu"] * 4, log_extra=logged.__setitem__,
        prompts=[""] * 4,
    ))  # fmt: skip
    assert found == [1.0, 0.0, None, None]
    assert logged["stitchcuda_kind"] == ["", "wrong", "unavailable", "not_judged"]
    assert asyncio.run(reward([program("good")], task=["nothing"])) == [None]


def test_verl_is_told_what_was_not_judged(server: Served) -> None:
    found = [compute_score("kernels", program(name), "relu", {"index": 1}, url=server.url)
             for name in ("good", "wrong", "unavailable")]  # fmt: skip
    assert [(answer["score"], answer["judged"]) for answer in found] == [(1.0, 1.0), (0.0, 1.0), (0.0, 0.0)]
    assert len({tuple(answer) for answer in found}) == 1
    assert compute_score("kernels", program("good"), "0", {"task": "relu"}, url=server.url)["score"] == 1.0


def test_verl_is_told_nothing_where_it_must_be_judged(server: Served) -> None:
    ask = functools.partial(compute_score, "kernels", url=server.url, must_judge=True)
    assert ask(program("wrong"), "relu")["score"] == 0.0
    for name, why in (("unavailable", "the judge was killed"), ("not_judged", "the simulator cannot judge it")):
        with pytest.raises(Unavailable, match=rf"no reward \({name}\): .*{why}"):
            ask(program(name), "relu")
    with pytest.raises(Unavailable, match=r"no reward \(unavailable\): "):
        ask(program("good"), "", {"reference": "class Model: ..."})


def test_a_row_of_a_session_is_asked_for_by_its_reference(tmp_path: Path) -> None:
    with serving(tmp_path, ScriptedPool(), token="secret") as server:
        info = {"reference": "class Model: 'of a session'\n", "index": 3}
        answer = compute_score("stitchcuda/skill1", program("good"), "", info, url=server.url, token="secret")
    assert (answer["score"], answer["state"]) == (1.0, "ok")


def test_a_client_waits_for_a_server_that_is_away(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match=r"no answer from http://127.0.0.1:1 in 1 s; at last: .*refused"):
        RewardClient("http://127.0.0.1:1", patience_s=1.0).judge("relu", "")


def test_tasks_are_read_in_their_forms(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(TASK)
    (tmp_path / "helper.py").write_text("x = 1\n")
    table = tmp_path / "table.jsonl"
    table.write_text('{"name": "a/b", "source": "class Model: 1"}\n\n{"source": "class Model: 2"}\n')
    assert read_tasks(tmp_path) == read_tasks(tmp_path / "one.py") == {"one": TASK}
    assert read_tasks(table) == {"a/b": "class Model: 1", "3": "class Model: 2"}
    for text, why in (("{}", "has no reference"), ('{"name": "a", "source": "1"}\n{"name": "a", "source": "2"}', "two tasks"),
                      ("", "holds no task"), ("[", "is no JSON")):  # fmt: skip
        table.write_text(text)
        with pytest.raises(BadInput, match=why):
            read_tasks(table)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"tasks": Path("nowhere")}, "there is no nowhere"), ({"host": "0.0.0.0"}, "may be reached from elsewhere"),
        ({"token_file": Path("nowhere")}, "cannot be read"), ({"token_file": Path("/dev/null")}, "holds no token"),
        ({"host": "203.0.113.1", "token_file": Path(__file__)}, "holds no token"), ({"port": 1 << 17}, "cannot listen on port"),
    ],
)  # fmt: skip
def test_a_server_that_cannot_be_started_says_why(tmp_path: Path, given: Mapping[str, Any], why: str) -> None:
    (tmp_path / "one.py").write_text(TASK)
    with pytest.raises(BadInput, match=why):
        serve(**{"tasks": tmp_path, "store": tmp_path / "store", "target": "sim", "port": 0, **given})


@pytest.mark.more
def test_kills_change_no_answer(tmp_path: Path) -> None:
    """The whole of it: the command, real verifiers, kill -9 of the server, of a judge and of what is below one."""
    honest = {"model_new.py": programs.KERNEL_MODEL, "kernels/gate.cu": programs.KERNEL,
              "kernels/gate_binding.cc": programs.BINDING}  # fmt: skip
    given: dict[str, str | dict[str, str]] = {
        "honest": honest, "broken": {**honest, "kernels/gate.cu": programs.KERNEL.replace("const float*", "no_type*")},
        "wrong": {**honest, "kernels/gate.cu": programs.KERNEL.replace("* gain;", "* gain + 1.0f;")}, "nothing": "",
        "torch": programs.REFERENCE.replace("class Model(", "class ModelNew("),
        "no model": programs.REFERENCE.replace("Model", "M"),
    }  # fmt: skip
    jobs = [Job(name, name, "gate", text) for name, text in given.items()]
    (tmp_path / "gate.py").write_text(programs.REFERENCE)
    server = Server(tmp_path, tmp_path / "gate.py", "sim", free_port())
    server.start()
    try:
        killed = run(server, jobs, 3, kill=True)
    finally:
        server.stop()
    assert killed.faults == []
    assert len(killed.kills) == 4
    assert {name: (answer["state"], answer["kind"]) for name, answer in killed.answers.items()} == {
        "honest": ("ok", ""), "broken": ("candidate_error", "build"), "wrong": ("candidate_error", "wrong"),
        "nothing": ("candidate_error", "no_program"), "torch": ("candidate_error", "refused"),
        "no model": ("candidate_error", "no_program"),
    }  # fmt: skip
