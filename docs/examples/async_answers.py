"""In a program with an event loop: several answers at once, one of them streamed, one ended early."""

import asyncio

from penstock import AsyncLLM, SamplingParams


def asked(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


async def first_words(llm: AsyncLLM) -> str:
    text = ""
    async for delta in llm.stream(asked("Who are you?"), SamplingParams(temperature=0)):
        text += delta.outputs.text
        if text.count(" ") > 3:
            await llm.abort(delta.request_id)
    return text


async def main() -> None:
    async with AsyncLLM("pocket") as llm:
        conversations = [asked("What is 4 + 5?"), asked("What is the opposite of hot?")]
        answers = llm.chat(conversations, SamplingParams(temperature=0))
        outputs, words = await asyncio.gather(answers, first_words(llm))
    for output in outputs:
        print(output.outputs.text)
    print(words)


asyncio.run(main())
