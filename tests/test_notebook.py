"""docs/tour.ipynb runs from top to bottom in a real kernel, and its progress is a bar that refreshes in place."""

import nbformat
from conftest import HANG, ROOT
from nbclient import NotebookClient

NOTEBOOK = ROOT / "docs" / "tour.ipynb"


def outputs(cell, kind):
    return [output for output in cell.outputs if output.output_type == kind]


def test_notebook_runs_from_top_to_bottom(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells), "the notebook is kept without outputs"
    NotebookClient(notebook, timeout=HANG, resources={"metadata": {"path": str(tmp_path)}}).execute()

    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    trained = [cell for cell in code if ".learn(" in cell.source]
    assert len(trained) == 2
    for cell in trained:
        (bar,) = outputs(cell, "display_data")  # one, which was brought up to date
        assert "<progress" in bar.data["text/html"] and "env steps/s" in bar.data["text/plain"]
        assert outputs(cell, "stream") == []  # no red text beside it
    assert "100%" in outputs(trained[0], "display_data")[0].data["text/plain"]
    results = {cell.source: output.data["text/plain"] for cell in code for output in outputs(cell, "execute_result")}
    assert results["trainer.evaluate(episodes=5)"] == "Evaluation(mean=-10, std=0, episodes=5)"
    assert results['cart_pole.run.summary["ended"], cart_pole.env_steps'].startswith("('stopped', ")
    figure = next(cell for cell in code if "plot()" in cell.source)
    assert "image/png" in outputs(figure, "execute_result")[0].data
