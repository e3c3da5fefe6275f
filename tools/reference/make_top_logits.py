"""What PyTorch makes of a teacher that is told by its likeliest ids: tests/data/top_logits.json.

    python tools/reference/make_top_logits.py

Of each case: a student's and a teacher's logits, labels (-100: none), and the ids and
log-probabilities of torch.topk of the teacher's log-softmax, by ascending id. Its distribution is
softmax(log-probability / T) over these ids; the loss of a token is (1 - mix) cross-entropy +
mix T^2 KL(p || softmax(student / T)), a sum over the tokens with a label, divided by their number.
"""

import json

import torch

torch.manual_seed(11)
torch.set_default_dtype(torch.float64)


def case(tokens, vocabulary, top, temperature, mix):
    student = (2 * torch.randn(tokens, vocabulary)).requires_grad_()
    teacher = 3 * torch.randn(tokens, vocabulary)
    labels = torch.randint(0, vocabulary, (tokens,))
    labels[1] = -100
    counted = labels >= 0
    values, ids = torch.log_softmax(teacher, -1).topk(top)
    ids, order = ids.sort(-1)
    values = values.gather(-1, order)
    p = torch.softmax(values / temperature, -1)
    q = torch.log_softmax(student / temperature, -1).gather(-1, ids)
    divergence = torch.nn.functional.kl_div(q, p, reduction="none").sum(-1)
    hard = torch.nn.functional.cross_entropy(student, labels, reduction="none", ignore_index=-100)
    each = (1 - mix) * hard + mix * temperature**2 * divergence
    loss = each[counted].sum() / counted.sum()
    loss.backward()
    return {
        "top": top,
        "temperature": temperature,
        "mix": mix,
        "labels": labels.tolist(),
        "student": student.tolist(),
        "teacher": teacher.tolist(),
        "ids": ids.tolist(),
        "log_probs": values.tolist(),
        "loss": loss.item(),
        "cross_entropy": hard[counted].mean().item(),
        "divergence": divergence[counted].mean().item(),
        "gradient": student.grad.tolist(),
    }


cases = [case(4, 11, 3, 2.0, 0.5), case(3, 9, 1, 1.0, 1.0), case(5, 7, 7, 3.5, 0.25)]
with open("tests/data/top_logits.json", "w") as file:
    json.dump({"torch": torch.__version__, "cases": cases}, file, separators=(",", ":"))
    file.write("\n")
